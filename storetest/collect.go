package storetest

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

var collectTests = []test{
	{"Unnamed", collectUnnamed},
	{"Busy", collectBusy},
}

func (s *suite) collector() store.Collector {
	s.Helper()
	c, ok := s.st.(store.Collector)
	if !ok {
		s.Skip("this driver does not collect")
	}
	return c
}

// collectUnnamed: a blob stays while anything names it: a record, a text, a string that is a blob itself, a session in
// the trash; and goes when nothing does.
func collectUnnamed(s *suite) {
	s.collector()
	put := func(text string) string {
		name, err := s.blobs().PutBlob(s.ctx, []byte(text))
		s.ok(err)
		return name
	}
	inText, inBlob, unnamed := put("named in a text"), put("named in a long string"), put("named by nothing")
	evs := talk(0, 3)
	for i, text := range []string{"see " + inText, strings.Repeat("long ", 10_000) + inBlob, strings.Repeat("only in the trash ", 4_000)} {
		evs[i].Data = jsontext.Value(fmt.Sprintf(`{"text":%q}`, text))
	}
	for i, id := range []session.ID{"stored", "trashed"} {
		w, err := s.st.Create(s.ctx, header(id))
		s.ok(err)
		part := evs[:2]
		if i == 1 {
			evs[2].Seq = 0
			part = evs[2:]
		}
		_, err = w.Append(s.ctx, part)
		s.ok(err)
		_, err = w.Flush(s.ctx)
		s.ok(err)
		s.ok(w.Close())
	}
	s.reopen()
	if r, ok := s.st.(store.Remover); ok {
		s.ok(r.Trash(s.ctx, "trashed"))
	}
	dry, err := s.collector().Collect(s.ctx, store.CollectOptions{DryRun: true})
	s.ok(err)
	c, err := s.collector().Collect(s.ctx, store.CollectOptions{})
	s.ok(err)
	if c.Removed.N != 1 || c.Removed.Bytes != int64(len("named by nothing")) || c.Kept.N != 4 || len(c.Unread) > 0 || dry.Removed != c.Removed {
		s.Fatalf("%+v, with DryRun %+v", c, dry)
	}
	_, err = s.blobs().GetBlob(s.ctx, unnamed)
	s.is(err, store.ErrNotFound, "what nothing named")
	for name, want := range map[string]string{inText: "named in a text", inBlob: "named in a long string"} {
		got, err := s.blobs().GetBlob(s.ctx, name)
		s.ok(err)
		if !bytes.Equal(got, []byte(want)) {
			s.Fatalf("%q", got)
		}
	}
	if r, ok := s.st.(store.Remover); ok {
		s.ok(r.Restore(s.ctx, "trashed"))
	}
	s.holds("stored", evs[:2])
	s.holds("trashed", evs[2:])
	if c, err = s.collector().Collect(s.ctx, store.CollectOptions{}); err != nil || c.Removed.N != 0 {
		s.Fatalf("again: %+v, %v", c, err)
	}
}

// collectBusy: what was put and is not named yet is not collected, unless it was released.
func collectBusy(s *suite) {
	c := s.collector()
	w, err := s.st.Create(s.ctx, header("busy"))
	s.ok(err)
	name, err := s.blobs().PutBlob(s.ctx, []byte("soon named"))
	s.ok(err)
	_, err = c.Collect(s.ctx, store.CollectOptions{})
	s.is(err, store.ErrBusy, "collecting")
	evs := talk(0, 1)
	evs[0].Data = jsontext.Value(`{"text":"see ` + name + `"}`)
	_, err = w.Append(s.ctx, evs)
	s.ok(err)
	got, err := c.Collect(s.ctx, store.CollectOptions{})
	s.ok(err)
	if got.Removed.N != 0 || got.Kept.N != 1 {
		s.Fatalf("%+v", got)
	}
	name, err = s.blobs().PutBlob(s.ctx, []byte("never named"))
	s.ok(err)
	_, err = c.Collect(s.ctx, store.CollectOptions{})
	s.is(err, store.ErrBusy, "collecting")
	s.blobs().ReleaseBlob(name)
	got, err = c.Collect(s.ctx, store.CollectOptions{})
	s.ok(err)
	if got.Removed.N != 1 || got.Kept.N != 1 {
		s.Fatalf("with one that nobody will name: %+v", got)
	}
	s.ok(w.Close())
}
