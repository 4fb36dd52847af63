package scenario

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
)

// TestRivalsAndKills lets three runs at a time fight for one session and kills one of them now and then:
// each gets in or is told that the session is held, and the log is what one writer at a time made of it.
func TestRivalsAndKills(t *testing.T) {
	c := &tally{n: map[string]int{}}
	t.Run("seeds", func(t *testing.T) {
		for seed := range envInt("STRANDLINE_RIVAL_SEEDS", 5) {
			t.Run(strconv.Itoa(seed), func(t *testing.T) {
				t.Parallel()
				rivalsAndKills(t, uint64(seed), c)
			})
		}
	})
	t.Logf("\n%v", c)
	if !t.Failed() && (c.n["run: done"] == 0 || c.n["run: busy"] == 0 || c.n["run: killed"] == 0) {
		t.Error("the rivals never met")
	}
}

func rivalsAndKills(t *testing.T, seed uint64, c *tally) {
	v := &victim{provider: "script", box: newBox(t), r: rand.New(rand.NewPCG(seed, 11)), c: c, printed: map[int64]string{}}
	v.id = v.run("begin", []line{say("begun")}).SessionID
	prompts := []string{"begin"}
	for round := range 4 {
		var ps []*proc
		for i := range 3 {
			k := newTask(v.r, v.out, round*3+i+1)
			prompts = append(prompts, k.prompt)
			ps = append(ps, v.start(v.args(k, "stream-json")...))
		}
		doomed := ps[v.r.IntN(len(ps))]
		for range v.r.IntN(60) {
			if _, ok := doomed.next(); !ok {
				break
			}
		}
		doomed.kill()
		for _, p := range ps {
			switch code := p.wait(); code {
			case -1:
				c.add("run: killed")
			case 0:
				c.add("run: done")
			case 3:
				c.add("run: busy")
			default:
				t.Errorf("a run ended with exit code %d: %s", code, clip(p.errs.String()))
			}
			for _, l := range p.seen {
				v.take(l, "")
			}
		}
		v.check()
		if t.Failed() {
			return
		}
	}
	k := newTask(v.r, v.out, 13)
	v.lastLife(k)
	v.check()
	v.account(append(prompts, k.prompt))
	v.noLitter()
	c.add(fmt.Sprintf("lives: %d of 14 runs wrote", len(v.log(v.id).segments)))
}
