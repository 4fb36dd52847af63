package scenario

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// program is the built command.
var program string

// programVar names a command to test instead of building one: another build, one with the race detector.
const programVar = "STRANDLINE_SCENARIO_PROGRAM"

// childVar names the variable that makes this test binary play a child's part; see children.
const childVar = "STRANDLINE_SCENARIO_CHILD"

// children are the parts that this binary plays when it is started by one of its own tests.
var children = map[string]func(args []string) error{}

func TestMain(m *testing.M) {
	if part := os.Getenv(childVar); part != "" {
		play, ok := children[part]
		if !ok {
			fmt.Fprintln(os.Stderr, "no such part:", part)
			os.Exit(2)
		}
		if err := play(os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "strand-scenario-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	if program = os.Getenv(programVar); program != "" {
		return m.Run()
	}
	program = filepath.Join(dir, "strand")
	build := exec.Command("go", "build", "-o", program, "../cmd/strand")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "building the command: %v\n%s", err, out)
		return 1
	}
	// Some cases run the command as another user, who must be able to reach it.
	for _, name := range []string{dir, program} {
		if err := os.Chmod(name, 0o755); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return m.Run()
}
