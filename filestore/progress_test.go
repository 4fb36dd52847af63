package filestore

import (
	"fmt"
	"os"
	"runtime/debug"
)

func (e *explorer) progress(frames []*branching) {
	points := 0
	for _, ps := range e.points {
		points += len(ps)
	}
	done, width := 0.0, 1.0
	for i, f := range frames {
		if len(f.choices) > 0 && i < 400 {
			done += width * float64(f.next-1) / float64(len(f.choices))
			width /= float64(len(f.choices))
		}
	}
	fmt.Fprintf(os.Stderr, "%s: %d states %d steps %d points %d ends depth %d, done %.3g cpu %v\n", e.s.name, len(e.seen), e.steps, points, len(e.ends), len(frames), done, cpu())
	if os.Getenv("EXPLORE_STOP") != "" && cpu().Seconds() > 40 {
		debug.SetPanicOnFault(true)
		panic("stop")
	}
}
