package scenario

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// smallDisk mounts a file system of 8 MiB for the store of b, with spare bytes free. It returns what gives 5 MiB back.
func smallDisk(b *box, spare int64) (*box, func()) {
	t := b.t
	t.Helper()
	dir := filepath.Join(b.dir, "disk")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=8m"); err != nil {
		t.Skipf("mounting a small file system: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	ballast := filepath.Join(dir, "ballast")
	f, err := os.Create(ballast)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	n, err := f.Write(make([]byte, 9<<20))
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("%d bytes went in: %v", n, err)
	}
	if err := f.Truncate(int64(n) - spare); err != nil {
		t.Fatal(err)
	}
	b = b.withStore(filepath.Join(dir, "store"))
	// The index writes when it likes, and gives room back when it finds none: in its place is a directory here.
	if err := os.MkdirAll(filepath.Join(b.store, "index.db", "none"), 0o700); err != nil {
		t.Fatal(err)
	}
	return b, func() {
		if err := os.Truncate(ballast, int64(n)-spare-5<<20); err != nil {
			t.Fatal(err)
		}
	}
}

// P10: the disk is full and has room again. A turn makes ten calls of 300 KiB of output each; the disk has 2 MiB,
// or not enough for the first write of all.
func TestP10_DiskFullAndBack(t *testing.T) {
	for name, spare := range map[string]int64{"in the middle": 2 << 20, "at the first write": 0} {
		t.Run(name, func(t *testing.T) { p10(t, spare) })
	}
}

func p10(t *testing.T, spare int64) {
	b, free := smallDisk(newBox(t), spare)
	var lines []line
	for n := range 10 { // random: no two are stored once
		lines = append(lines, use(bash(fmt.Sprintf("echo >> %s/ran-%d; head -c 230000 /dev/urandom | base64 -w 76", b.out, n))))
	}
	lines = append(lines, say("all ten are done"))
	cmd := b.command(context.Background(), "chat", "--script", b.script(lines...), "--cwd", b.ws, "--approve", "yolo")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	errs, err := os.Create(filepath.Join(b.out, "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	defer errs.Close()
	cmd.Stderr = errs
	p := startCmd(t, cmd)
	said := func() string {
		text, _ := os.ReadFile(errs.Name())
		return string(text)
	}
	waitFor := func(what string, ok func() bool) {
		t.Helper()
		for end := time.Now().Add(patience); !ok(); {
			if time.Now().After(end) {
				t.Fatalf("%s did not come: %s", what, said())
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
	ran := func() (n int) {
		names, _ := filepath.Glob(filepath.Join(b.out, "ran-*"))
		return len(names)
	}
	if _, err := io.WriteString(in, "fill the disk\n"); err != nil {
		t.Fatal(err)
	}
	waitFor("not saved", func() bool { return strings.Contains(said(), "not saved") })
	if !strings.Contains(said(), b.store) {
		t.Errorf("it does not say where: %s", said())
	}
	before := ran()
	waitFor("the end of the turn", func() bool { return strings.Contains(said(), "turn 1: ") || spare == 0 })
	if n := ran(); n != before {
		t.Errorf("%d tools started after the first failed commit", n-before)
	}
	if spare == 0 && before > 0 || before == 10 {
		t.Errorf("%d tools ran", before)
	}
	sizes := segmentSizes(b)
	free()
	if _, err := io.WriteString(in, "and now?\n"); err != nil {
		t.Fatal(err)
	}
	p.until("all ten are done") // the second turn makes the calls that are left
	if n := ran(); n < 9 {
		t.Errorf("%d calls were made in the end", n)
	}
	for name, size := range sizes {
		if now := segmentSizes(b)[name]; now < size {
			t.Errorf("%s had %d bytes and has %d", name, size, now)
		}
	}
	p.kill()
	p.wait()
	ids := b.sessionIDs()
	if len(ids) != 1 {
		t.Fatalf("the store has the sessions %q: %s", ids, said())
	}
	b.doctor(ids[0])
	for _, text := range []string{"fill the disk", "and now?"} {
		if shown := b.ok("show", ids[0], "--events").out; !strings.Contains(shown, text) {
			t.Errorf("%q is not in the log", text)
		}
	}
	if r := b.run("after the kill", []line{say("resumed"), say("resumed")}, "--session", ids[0]); r.Text != "resumed" {
		t.Errorf("it goes on with %+v", r)
	}
	b.doctor(ids[0])
}

// segmentSizes returns the sizes of all segments of the store.
func segmentSizes(b *box) map[string]int64 {
	out := map[string]int64{}
	names, _ := filepath.Glob(filepath.Join(b.store, "sessions", "*", "*.jsonl"))
	for _, name := range names {
		if info, err := os.Stat(name); err == nil {
			out[name] = info.Size()
		}
	}
	return out
}

// P10 on a file system that cannot be written any more: it says so, reads, and goes on when it can be written.
func TestP10_ReadOnly(t *testing.T) {
	b, free := smallDisk(newBox(t), 2<<20)
	free()
	id := b.run("first", []line{say("one")}).SessionID
	dir := filepath.Dir(b.store)
	if err := syscall.Mount("", dir, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, "size=8m"); err != nil {
		t.Skipf("mounting it read-only: %v", err)
	}
	before := snap(t, b.store)
	r := b.strand("run", "second", "--session", id, "--script", b.script(say("never said")), "--cwd", b.ws)
	if r.code == 0 || !strings.Contains(r.err, b.store) || !strings.Contains(r.err, "read-only") {
		t.Errorf("writing: %v", r)
	}
	if out := b.ok("show", id).out; !strings.Contains(out, "one") {
		t.Errorf("show: %s", out)
	}
	if rows := b.list(); len(rows) != 1 {
		t.Errorf("list: %+v", rows)
	}
	if d := before.diff(snap(t, b.store)); d != "" {
		t.Errorf("it changed: %s", d)
	}
	if err := syscall.Mount("", dir, "", syscall.MS_REMOUNT, "size=8m"); err != nil {
		t.Fatal(err)
	}
	if r := b.run("third", []line{say("two"), say("two")}, "--session", id); r.Text != "two" {
		t.Errorf("it goes on with %+v", r)
	}
}

// A disk without room for the index, or for one more page of it, makes answers slower and nothing else.
func TestIndexOnFullDisk(t *testing.T) {
	small, _ := smallDisk(newBox(t), 4<<20)
	name := filepath.Join(small.store, "index.db")
	if err := os.RemoveAll(name); err != nil {
		t.Fatal(err)
	}
	b := newIndexed(small)
	fill := func(as string) {
		f, err := os.Create(filepath.Join(filepath.Dir(b.store), as))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if n, err := f.Write(make([]byte, 9<<20)); !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("%d bytes went in: %v", n, err)
		}
	}
	fill("full")
	b.answers("the disk is full")
	for _, behind := range []string{"", "-wal", "-shm"} {
		_ = os.Remove(name + behind)
	}
	fill("fuller")
	b.answers("the disk is full, and there is no index")
}
