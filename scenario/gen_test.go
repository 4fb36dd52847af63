package scenario

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
)

// task is a random piece of work for one life of a session: a script for the model, and what its calls do.
type task struct {
	prompt string
	lines  []line
	events int // about how many events it takes, for choosing where to kill
}

// newTask makes the work of life number life. Labels and file contents are unique over all lives, so that
// whatever ran twice is seen.
func newTask(r *rand.Rand, outside string, life int) task {
	k := task{prompt: fmt.Sprintf("prompt-%d please", life), events: 12}
	trace := filepath.Join(outside, "trace")
	oneCall := func(place string) call {
		switch r.IntN(11) {
		case 10: // long enough for a file of its own
			return write("big.txt", strings.Repeat("big "+place+"\n", 5000))
		case 0, 1, 2, 3:
			label := "L" + place
			return bash(fmt.Sprintf("echo %s >> %s; echo did %s", label, trace, label))
		case 4:
			return write(fmt.Sprintf("f%d.txt", r.IntN(4)), fmt.Sprintf("content %s\nalpha\nbeta\n", place))
		case 5:
			return call{"edit", map[string]string{"path": fmt.Sprintf("f%d.txt", r.IntN(4)), "old": "alpha", "new": "alpha " + place}}
		case 6:
			return call{"todo_write", map[string]any{"todos": []map[string]string{{"content": place, "status": "pending"}}}}
		case 7:
			return call{"grep", map[string]string{"pattern": "content"}}
		case 8:
			return call{"ls", map[string]string{}}
		default:
			return read(fmt.Sprintf("f%d.txt", r.IntN(4)))
		}
	}
	for step := range 1 + r.IntN(4) {
		l := line{Text: fmt.Sprintf("step %d of life %d. %s", step, life, strings.Repeat("words and more words ", r.IntN(8)))}
		if r.IntN(3) == 0 {
			l.Reasoning = "let me think about step " + fmt.Sprint(step)
		}
		for c := range 1 + r.IntN(4) {
			l.ToolCalls = append(l.ToolCalls, oneCall(fmt.Sprintf("%d.%d.%d", life, step, c)))
			k.events += 2
		}
		k.events += 8
		k.lines = append(k.lines, l)
	}
	// More answers than turns: a prompt that was accepted in an earlier life and never worked on gets its turn first.
	for i := range life + 2 {
		k.lines = append(k.lines, say(fmt.Sprintf("answer %d of life %d", i, life)))
	}
	return k
}
