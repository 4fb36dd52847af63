package subagent_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/strandline-dev/strandline/agent"
	"github.com/strandline-dev/strandline/filestore"
	"github.com/strandline-dev/strandline/keeper"
	"github.com/strandline-dev/strandline/live"
	"github.com/strandline-dev/strandline/message"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
	"github.com/strandline-dev/strandline/subagent"
	"github.com/strandline-dev/strandline/tool"
)

func fromEnv(name string, otherwise int) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil {
		return n
	}
	return otherwise
}

// A forked child is a pointer: on disk and in memory it has its own work and nothing of its parent's, however long that
// is. STRANDLINE_FORK_CHILDREN and STRANDLINE_FORK_EVENTS make it longer; -v tells the figures.
func TestForkIsAPointer(t *testing.T) {
	children, events := fromEnv("STRANDLINE_FORK_CHILDREN", 20), fromEnv("STRANDLINE_FORK_EVENTS", 12000)
	ctx, root := context.Background(), t.TempDir()
	st, err := filestore.Open(root, filestore.Options{Now: time.Now, Rand: rand.Reader, Program: "test", PID: os.Getpid()})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	reg, err := session.NewRegistry(agent.Kinds(), subagent.Kinds())
	if err != nil {
		t.Fatal(err)
	}
	k := keeper.New(st, live.New(), keeper.Options{Now: func() int64 { return 1 }, NewID: func() session.ID { return "unused" }, Registry: reg})
	defer k.Close(ctx)
	parent, err := k.Create(ctx, head("root"), session.Seed{})
	if err != nil {
		t.Fatal(err)
	}
	turn := func(s *session.Session, text string) {
		n, _ := s.State().Turn()
		n++
		for _, d := range []session.Draft{
			{Type: session.TypeTurnStart, Data: session.TurnStart{Turn: n}},
			{Type: session.TypeStepStart, Data: session.StepRef{Turn: n, Step: 1}},
			{Type: session.TypeUserMessage, Op: session.Append(), Data: message.User(fmt.Sprintf("u%d", n), text)},
			{Type: session.TypeAssistantMessage, Op: session.Append(), Data: session.AssistantMessage{Turn: n, Step: 1,
				Message: message.Message{Role: message.RoleAssistant, Content: []message.Block{message.TextBlock(text)}}}},
			{Type: session.TypeStepEnd, Data: session.StepRef{Turn: n, Step: 1}},
			{Type: session.TypeTurnEnd, Data: session.TurnEnd{Turn: n, Reason: session.Reason{Kind: session.ReasonCompleted}}},
		} {
			if _, err := s.Append(d); err != nil {
				t.Fatal(err)
			}
		}
	}
	long := strings.Repeat("word ", 60)
	for parent.Session().Len() < session.Seq(events) {
		turn(parent.Session(), long)
	}
	if err := parent.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	if _, _, err := parent.Session().Surface(); err != nil { // as its request has, that asks for subagents
		t.Fatal(err)
	}
	size := func(dir string) (n int64) {
		if err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() {
				info, _ := d.Info()
				n += info.Size()
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
		return n
	}
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	var diskBefore int64
	var heapBefore uint64
	var open []*keeper.Handle
	var forking, opening, working []time.Duration
	for i := range children + 1 {
		if i == 1 { // what all of them share is there
			diskBefore, heapBefore = size(root), heap()
		}
		begun := time.Now()
		h, err := k.Fork(ctx, "root", store.ForkOptions{Child: session.ID(fmt.Sprintf("child-%d", i)), Kind: session.KindSubagent, Depth: 1})
		if err != nil {
			t.Fatal(err)
		}
		forked := time.Now()
		c, err := k.Resume(ctx, h.ID)
		if err != nil {
			t.Fatal(err)
		}
		opened := time.Now()
		if _, err := c.Session().Append(session.Draft{Type: subagent.TypeProfile, Data: subagent.Profile{Parent: "root", Limit: tool.PolicyAsk}}); err != nil {
			t.Fatal(err)
		}
		turn(c.Session(), "own work")
		if err := c.Flush(ctx); err != nil {
			t.Fatal(err)
		}
		open = append(open, c)
		forking, opening, working = append(forking, forked.Sub(begun)), append(opening, opened.Sub(forked)), append(working, time.Since(opened))
	}
	perDisk := (size(root) - diskBefore) / int64(children)
	perHeap := (int64(heap()) - int64(heapBefore)) / int64(children)
	median := func(d []time.Duration) time.Duration { slices.Sort(d); return d[len(d)/2].Round(10 * time.Microsecond) }
	t.Logf("%d children of %d events (%d bytes): %d bytes on disk, %d bytes of memory each; medians: %v to fork, %v to open, %v to work and save",
		children, parent.Session().Len(), diskBefore, perDisk, perHeap, median(forking), median(opening), median(working))
	if perDisk > 4<<10 {
		t.Errorf("each child takes %d bytes on disk", perDisk)
	}
	if perHeap > 32<<10 {
		t.Errorf("each open child takes %d bytes of memory", perHeap)
	}
	for _, c := range open {
		if _, _, err := c.Session().Surface(); err != nil {
			t.Fatal(err)
		}
	}
	n := parent.Session().State().SurfaceLen()
	perView := (int64(heap())-int64(heapBefore))/int64(children) - perHeap
	t.Logf("with the view read: %d bytes more each, %d for each of %d messages", perView, perView/int64(n), n)
	// What a child has of each message is its place; the text is the parent's.
	if perView > 400*int64(n) {
		t.Errorf("each child that has read its view takes %d bytes more for %d messages", perView, n)
	}
	runtime.KeepAlive(open)
}
