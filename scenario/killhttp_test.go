package scenario

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/strandline-dev/strandline/session"
)

// TestKillLoopHTTP is TestKillLoop with the model behind HTTP, in a process that can die as well. Beside its
// outcomes the service accepts every request, and each goes on where the one before ended.
func TestKillLoopHTTP(t *testing.T) {
	kills, from := envInt("STRANDLINE_HTTP_KILLS", 30), envInt("STRANDLINE_KILL_FROM", 1)
	c := &tally{n: map[string]int{}}
	start := time.Now()
	t.Run("seeds", func(t *testing.T) {
		for seed, planned := uint64(from), 0; planned < kills*3/2; seed++ { // some come too late
			planned += 1 + rand.New(rand.NewPCG(seed, 7)).IntN(4) // as liveAndDie draws it
			t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
				t.Parallel()
				killOneHTTP(t, seed, c)
			})
		}
	})
	done := 0
	for what, n := range c.n {
		if strings.HasPrefix(what, "death: ") {
			done += n
		}
	}
	t.Logf("%d kills in %v:\n%v", done, time.Since(start).Round(time.Millisecond), c)
	if done < kills && !t.Failed() {
		t.Errorf("%d kills, want %d", done, kills)
	}
	if kills >= 100 && !t.Failed() {
		for _, want := range []string{"call left: unknown", "kill: while working", "lives: resumed over an open turn",
			"death: of the service, which came back", "death: of the service and then of the run"} {
			if c.n[want] == 0 {
				t.Errorf("no kill led to %q: the loop misses what it is for", want)
			}
		}
	}
}

func killOneHTTP(t *testing.T, seed uint64, c *tally) {
	v := &victim{box: newBox(t), r: rand.New(rand.NewPCG(seed, 7)), c: c, printed: map[int64]string{}, provider: "fake", wire: &wireLog{}}
	v.seed = seed
	v.liveAndDie(func(k task) {
		for i := range k.lines {
			k.lines[i].ChunkMs = v.r.IntN(2) // so that an answer can be cut off
		}
		if v.r.IntN(3) == 0 {
			v.orphanedLife(k)
			return
		}
		if v.killedLife(k) {
			v.c.add("death: of the run")
		}
		v.serving.stop(t)
		v.wire.add(t, v.serving.requests(t))
	})
	if t.Failed() {
		return
	}
	v.serving.stop(t)
	v.wire.add(t, v.serving.requests(t))
	if v.wire.n == 0 {
		t.Error("nothing was asked over HTTP")
	}
	v.requestsDoctor(v.id)
	v.noSecrets()
	v.openTwice()
	v.noLitter()
	c.add("sessions")
	for range v.wire.n {
		c.add("requests accepted")
	}
}

// address is one that a service that died can have again: nobody else listens there.
func (v *victim) address() string {
	if runtime.GOOS != "linux" { // there all of 127/8 is this machine
		return "127.0.0.1:0"
	}
	return fmt.Sprintf("127.%d.%d.%d:18181", 1+v.seed/250%250, 1+v.seed%250, 1+v.scripts%250)
}

// orphanedLife kills the service of a life after a random number of printed lines. It comes back with what it
// still had to say, and the run is none the worse; or the run is killed, too, while it waits for that.
func (v *victim) orphanedLife(k task) {
	t := v.t
	if v.id != "" && len(v.log(v.id).openTurn()) > 0 {
		v.c.add("lives: resumed over an open turn")
	}
	p := v.start(v.args(k, "stream-json")...)
	first := v.serving
	addr := strings.TrimSuffix(strings.TrimPrefix(first.url, "http://"), "/v1")
	answered, last, failed := 0, "nothing", false
	see := func() bool {
		l, ok := p.next()
		if ok {
			var typ string
			if typ = v.take(l, ""); typ != "" {
				last = typ
			}
			switch typ {
			case session.TypeAssistantMessage:
				answered++
			case "llm/retry":
				failed = true
			}
		}
		return ok
	}
	for range v.r.IntN(k.events * 5 / 4) {
		if !see() {
			break
		}
	}
	spin(v.r.IntN(2_000_000))
	first.p.kill()
	first.p.wait()
	for !failed && see() {
	}
	v.wire.add(t, first.requests(t))
	if !failed {
		if code := p.wait(); code != 0 {
			t.Fatalf("the run ended with exit code %d: %s", code, clip(p.errs.String()))
		}
		v.c.add("kill: of the service, too late")
		v.find()
		return
	}
	if v.r.IntN(2) == 0 || runtime.GOOS != "linux" {
		spin(v.r.IntN(2_000_000))
		p.kill()
		v.died(p, last)
		v.c.add("death: of the service and then of the run")
		return
	}
	second := v.serve(k.lines[answered:], addr)
	for see() {
	}
	if code := p.wait(); code != 0 {
		t.Fatalf("the run ended with exit code %d although its service came back: %s", code, clip(p.errs.String()))
	}
	second.stop(t)
	v.wire.add(t, second.requests(t))
	v.find()
	v.c.add("death: of the service, which came back")
}
