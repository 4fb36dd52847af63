package bench

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

const emptyProgram = `package main

import _ "net/http"

func main() {}
`

// starts measures the start of the command: of "strand version" against an empty Go program that links
// net/http, and from the start of a process to the first request of a session of a thousand events.
func (r *run) starts(ctx context.Context) error {
	if r.Binary == "" {
		return nil
	}
	row := Row{Work: "process start (version), p50", Unit: "ms"}
	own, err := r.exec(ctx, 20, r.Binary, "version")
	if err != nil {
		return err
	}
	row.Value = quantile(own, .5) / 1e3
	if empty, err := r.buildEmpty(ctx); err != nil {
		row.Note = "no raw row: " + err.Error()
	} else {
		raw, err := r.exec(ctx, 20, empty)
		if err != nil {
			return err
		}
		row.Raw, row.Note = quantile(raw, .5)/1e3, "raw: an empty Go program that imports net/http"
	}
	r.emit(row)
	return r.firstRequest(ctx)
}

func (r *run) exec(ctx context.Context, n int, name string, args ...string) ([]time.Duration, error) {
	var out []time.Duration
	for range n {
		begin := time.Now()
		if err := exec.CommandContext(ctx, name, args...).Run(); err != nil {
			return nil, err
		}
		out = append(out, time.Since(begin))
	}
	return out, nil
}

func (r *run) buildEmpty(ctx context.Context) (string, error) {
	dir := filepath.Join(r.root, "empty")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", err
	}
	for name, text := range map[string]string{"main.go": emptyProgram, "go.mod": "module empty\n\ngo 1.26\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			return "", err
		}
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-o", "empty", ".")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("cannot build it here: %w: %.200s", err, out)
	}
	return filepath.Join(dir, "empty"), nil
}

// firstRequest resumes a session of a thousand events by the command and waits for the record of its first
// request.
func (r *run) firstRequest(ctx context.Context) error {
	script := filepath.Join(r.root, "reply.jsonl")
	if err := os.WriteFile(script, []byte(`{"text":"ok"}`+"\n"), 0o600); err != nil {
		return err
	}
	var took []time.Duration
	for i := range 10 {
		dir := fmt.Sprintf("start-%d", i)
		id, err := r.build(ctx, dir, 1000)
		if err != nil {
			return err
		}
		cmd := exec.CommandContext(ctx, r.Binary, "run", "--store", filepath.Join(r.root, dir),
			"--session", string(id), "--script", script, "--output", "stream-json", "go on")
		cmd.Dir, cmd.Stderr = r.root, os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			return err
		}
		begin := time.Now()
		if err := cmd.Start(); err != nil {
			return err
		}
		sc := bufio.NewScanner(out)
		sc.Buffer(nil, 16<<20)
		seen := false
		for sc.Scan() {
			if !seen && strings.Contains(sc.Text(), `"type":"request/header"`) {
				seen = true
				took = append(took, time.Since(begin))
			}
		}
		if err := cmd.Wait(); err != nil {
			return err
		}
		if !seen {
			return fmt.Errorf("the command recorded no request")
		}
	}
	r.emit(Row{Work: "process start to first request, p50", Size: 1000, Value: quantile(took, .5) / 1e3, Unit: "ms",
		Note: "resume of a stored session; includes its syncs"})
	return nil
}
