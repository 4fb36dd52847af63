package subagent_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
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

// A forked child is a pointer: on disk it has its own work and nothing of its parent's, however long that is.
// STRANDLINE_FORK_CHILDREN and STRANDLINE_FORK_EVENTS make it longer; -v tells the figures.
func TestForkIsAPointer(t *testing.T) {
	children, events := fromEnv("STRANDLINE_FORK_CHILDREN", 20), fromEnv("STRANDLINE_FORK_EVENTS", 2000)
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
	diskBefore, heapBefore, begun := size(root), heap(), time.Now()
	var open []*keeper.Handle
	for i := range children {
		h, err := k.Fork(ctx, "root", store.ForkOptions{Child: session.ID(fmt.Sprintf("child-%d", i)), Kind: session.KindSubagent, Depth: 1})
		if err != nil {
			t.Fatal(err)
		}
		c, err := k.Resume(ctx, h.ID)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Session().Append(session.Draft{Type: subagent.TypeProfile, Data: subagent.Profile{Parent: "root", Limit: tool.PolicyAsk}}); err != nil {
			t.Fatal(err)
		}
		turn(c.Session(), "own work")
		if err := c.Flush(ctx); err != nil {
			t.Fatal(err)
		}
		open = append(open, c)
	}
	took := time.Since(begun)
	perDisk := (size(root) - diskBefore) / int64(children)
	perHeap := (int64(heap()) - int64(heapBefore)) / int64(children)
	t.Logf("%d children of %d events (%d bytes): %d bytes on disk, %d bytes of memory, %v each",
		len(open), parent.Session().Len(), diskBefore, perDisk, perHeap, took/time.Duration(children))
	if perDisk > 4<<10 {
		t.Errorf("each child takes %d bytes on disk", perDisk)
	}
	if most := int64(64<<10 + 16*events); perHeap > most { // an index of the history and its folded state, not its text
		t.Errorf("each open child takes %d bytes of memory, want at most %d", perHeap, most)
	}
}
