package storetest

import (
	"bytes"
	"errors"
	"strings"
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/strandline-dev/strandline/record"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

var blobTests = []test{
	{"PutGet", blobPutGet},
	{"NotFound", blobNotFound},
	{"Corrupt", blobCorrupt},
	{"Crowd", blobCrowd},
}

func blobPutGet(s *suite) {
	b := s.blobs()
	for _, data := range [][]byte{[]byte("x"), {}, bytes.Repeat([]byte{0, 255, '\n'}, 100_000), []byte(`"a string"`)} {
		for range 2 {
			name, err := b.PutBlob(s.ctx, data)
			s.ok(err)
			if want := record.BlobName(data); name != want {
				s.Fatalf("name %q, want %q", name, want)
			}
		}
		got, err := b.GetBlob(s.ctx, record.BlobName(data))
		s.ok(err)
		if !bytes.Equal(got, data) {
			s.Fatalf("%d bytes came back as %d", len(data), len(got))
		}
	}
	mine := []byte("mine")
	name, err := b.PutBlob(s.ctx, mine)
	s.ok(err)
	mine[0] = 'M'
	got, err := b.GetBlob(s.ctx, name)
	s.ok(err)
	if string(got) != "mine" {
		s.Fatalf("the caller's later change is stored: %q", got)
	}
	if s.Reopen != nil {
		s.reopen()
		got, err := s.blobs().GetBlob(s.ctx, name)
		s.ok(err)
		if string(got) != "mine" {
			s.Fatalf("in the next process: %q", got)
		}
	}
}

func blobNotFound(s *suite) {
	b := s.blobs()
	_, err := b.GetBlob(s.ctx, record.BlobName([]byte("nobody put this")))
	s.is(err, store.ErrNotFound, "GetBlob")
	for _, name := range []string{"", "x", "sha256-", "../../etc/passwd", "sha256-../../../../etc/passwd", strings.ToUpper(record.BlobName(nil))} {
		_, err := b.GetBlob(s.ctx, name)
		s.is(err, store.ErrNotFound, "GetBlob "+name)
	}
}

// A blob that changed is never served; what does not need it stays readable.
func blobCorrupt(s *suite) {
	if s.CorruptBlob == nil {
		s.Skip("this driver's blobs cannot be reached")
	}
	b := s.blobs()
	text := quote(strings.Repeat("bits that rot ", 4000))
	all := []session.Event{chunk(0), {Seq: 1, Type: "x/a", Data: jsontext.Value(`{"a":` + text + `}`)}, chunk(2)}
	s.stored("rot1", all...)
	name := record.BlobName([]byte(text))
	s.CorruptBlob(s.T, name)
	_, err := b.GetBlob(s.ctx, name)
	s.is(err, store.ErrDamaged, "GetBlob")

	snap, err := s.st.Read(s.ctx, "rot1")
	s.ok(err)
	defer snap.Close()
	if snap.Prefix.Len() < 2 {
		return // a driver may see it when it reads
	}
	_, err = snap.Prefix.At(1)
	s.is(err, store.ErrDamaged, "At")
	for _, q := range []session.Seq{0, 2} {
		ev, err := snap.Prefix.At(q)
		s.ok(err)
		s.same(ev, all[q])
	}
	n := 0
	for _, err = range snap.Prefix.Range(0, 3) {
		n++
	}
	s.is(err, store.ErrDamaged, "Range")
	if n != 2 {
		s.Fatalf("Range gave %d answers, want one event and one error", n)
	}
}

func blobCrowd(s *suite) {
	b := s.blobs()
	data := bytes.Repeat([]byte("same"), 20_000)
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			name, err := b.PutBlob(s.ctx, data)
			if err != nil {
				s.Errorf("PutBlob: %v", err)
				return
			}
			if got, err := b.GetBlob(s.ctx, name); err != nil || !bytes.Equal(got, data) {
				s.Errorf("GetBlob: %d bytes, %v", len(got), err)
			}
		})
	}
	wg.Wait()
}

var fenceTests = []test{
	{"OtherWritesFirst", fenceOther},
	{"OldWritesFirst", fenceOld},
	{"Creators", fenceCreators},
}

func (s *suite) dropLease(id session.ID) {
	s.Helper()
	if s.DropLease == nil {
		s.Skip("a writer of this driver cannot lose its lease")
	}
	s.DropLease(s.T, id)
}

// Of two that believe they own a session at most one gets a seq.
func fenceOther(s *suite) {
	old := s.create("twos", talk(0, 3)...)
	s.flush(old)
	s.dropLease("twos")
	young := s.open("twos")
	s.append(young, user(3, "young"))
	// A driver may find out when it looks, before it acknowledges.
	if _, err := old.Append(s.ctx, []session.Event{user(3, "old")}); err != nil {
		s.is(err, store.ErrFenced, "Append of the old writer")
	}
	_, err := old.Flush(s.ctx)
	s.is(err, store.ErrFenced, "Flush of the old writer")
	s.append(young, chunk(4))
	s.flush(young)
	s.ok(old.Close())
	s.busy(s.st, "twos", s.stat("twos").Holder) // the old one's Close releases nothing
	s.holds("twos", append(talk(0, 3), user(3, "young"), chunk(4)))
}

func fenceOld(s *suite) {
	old := s.create("twos", talk(0, 3)...)
	s.dropLease("twos")
	young := s.open("twos")
	pos, err := old.Append(s.ctx, []session.Event{user(3, "old")})
	if err == nil {
		// The old one was first: then its event is there, and the young one must not overwrite it.
		if pos.Next != 4 {
			s.Fatalf("position %v", pos)
		}
		_, err = young.Append(s.ctx, []session.Event{user(3, "young")})
		s.is(err, store.ErrFenced, "Append of the young writer")
		s.holds("twos", append(talk(0, 3), user(3, "old")))
		return
	}
	s.is(err, store.ErrFenced, "Append of the old writer")
	s.append(young, user(3, "young"))
	s.holds("twos", append(talk(0, 3), user(3, "young")))
}

// Two processes may both believe that they create a session, until the first batch is there.
func fenceCreators(s *suite) {
	other := s.another()
	old := s.create("twos")
	young, err := other.Create(s.ctx, header("twos"))
	if err != nil {
		s.is(err, store.ErrExists, "Create of what another process has reserved")
		s.append(old, user(0, "old"))
		s.holdsIn(other, "twos", []session.Event{user(0, "old")})
		return
	}
	defer young.Close()
	_, err = young.Append(s.ctx, []session.Event{user(0, "young")})
	s.ok(err)
	if _, err := old.Append(s.ctx, []session.Event{user(0, "old")}); !errors.Is(err, store.ErrExists) && !errors.Is(err, store.ErrFenced) {
		s.Fatalf("two processes created one session: %v", err)
	}
	s.ok(old.Close())
	_, err = young.Append(s.ctx, []session.Event{chunk(1)})
	s.ok(err)
	s.holds("twos", []session.Event{user(0, "young"), chunk(1)})
}
