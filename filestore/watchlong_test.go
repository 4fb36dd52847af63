package filestore

import (
	"os"
	"runtime"
	"strconv"
	"testing"
	"weak"

	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
	"github.com/strandline-dev/strandline/vfs"
)

// counted counts the files that are open.
type counted struct {
	vfs.FS
	open, most int
}

type countedFile struct {
	vfs.File
	c *counted
}

func (c *counted) OpenFile(name string, mode vfs.Mode) (vfs.File, error) {
	f, err := c.FS.OpenFile(name, mode)
	if err != nil {
		return nil, err
	}
	c.open++
	c.most = max(c.most, c.open)
	return &countedFile{f, c}, nil
}

func (f *countedFile) Close() error {
	f.c.open--
	return f.File.Close()
}

// A follower of a long log, of many segments, keeps the segment that it reads, and of the events that it gave out
// nothing: STRANDLINE_WATCH_EVENTS=1000000 tries a long one.
func TestFollowingKeepsNothing(t *testing.T) {
	total := 20_000
	if n, err := strconv.Atoi(os.Getenv("STRANDLINE_WATCH_EVENTS")); err == nil {
		total = n
	}
	const batch, packedPart = 500, 3 // a third of it is packed
	root := t.TempDir()
	o := testOptions()
	o.FS, o.SegmentBytes = unsynced, int64(total)*150/24
	s := openWith(t, root, o)
	w := must[store.Writer](t)(s.Create(t.Context(), testHeader(subject)))
	at := 0
	write := func(until int) {
		for at < until {
			n := min(batch, until-at)
			mustAppend(t, w, events(session.Seq(at), n))
			at += n
		}
		mustFlush(t, w)
	}
	write(total / packedPart)
	w.Close()
	mustPack(t, s)
	w = must[store.Writer](t)(s.Open(t.Context(), subject))
	write(total / packedPart * 2)

	files := &counted{FS: unsynced}
	o.FS, o.Wait = files, noWait
	f, err := openWith(t, root, o).Watch(t.Context(), subject, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var given []weak.Pointer[session.Event]
	next, most := session.Seq(0), 0
	for {
		news, err := f.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(news.Events) == 0 && at < total { // it goes on
			write(total)
			continue
		}
		if len(news.Events) == 0 {
			break
		}
		if n := len(news.Events); n > newsEvents {
			t.Fatalf("%d events at once", n)
		}
		for _, ev := range news.Events {
			if ev.Seq != next {
				t.Fatalf("seq %d, want %d", ev.Seq, next)
			}
			next++
		}
		if given = append(given, weak.Make(&news.Events[0])); len(given)%16 != 0 {
			continue
		}
		news = store.News{}
		runtime.GC()
		kept := 0
		for _, p := range given {
			if p.Value() != nil {
				kept++
			}
		}
		most = max(most, kept)
	}
	if int(next) != total {
		t.Errorf("%d events, want %d", next, total)
	}
	if most > 2 || files.most > 2 {
		t.Errorf("kept: %d portions of events that were given out, %d open files", most, files.most)
	}
	t.Logf("%d events in %d portions: at most %d kept, %d files open", next, len(given), most, files.most)
	w.Close()
}
