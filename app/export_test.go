package app

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
)

// A file is made in full or not at all, for its owner alone, and never in the place of another one.
func TestWriteFile(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "out")
	text := func(s string) func(io.Writer) error {
		return func(w io.Writer) error { _, err := io.WriteString(w, s); return err }
	}
	if err := WriteFile(name, text("one")); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(name)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	var usage *UsageError
	if err := WriteFile(name, text("two")); !errors.As(err, &usage) {
		t.Errorf("over another file: %v", err)
	}
	// One that comes into being while it is written.
	late := filepath.Join(dir, "late")
	err = WriteFile(late, func(w io.Writer) error {
		if err := os.WriteFile(late, []byte("mine"), 0o644); err != nil {
			return err
		}
		return text("yours")(w)
	})
	if !errors.As(err, &usage) {
		t.Errorf("over a file that came meanwhile: %v", err)
	}
	broken := errors.New("broken")
	if err := WriteFile(filepath.Join(dir, "half"), func(w io.Writer) error { return errors.Join(text("half")(w), broken) }); !errors.Is(err, broken) {
		t.Errorf("a failed write: %v", err)
	}
	if err := WriteFile(filepath.Join(dir, "no", "dir"), text("x")); err == nil {
		t.Error("a directory that is not there")
	}
	if err := os.Symlink(filepath.Join(dir, "nowhere"), filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	if err := WriteFile(filepath.Join(dir, "link"), text("x")); !errors.As(err, &usage) {
		t.Errorf("over a link: %v", err)
	}
	for file, want := range map[string]string{"out": "one", "late": "mine"} {
		if b, err := os.ReadFile(filepath.Join(dir, file)); err != nil || string(b) != want {
			t.Errorf("%s holds %q, %v", file, b, err)
		}
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 3 {
		t.Errorf("left behind: %v %v", left, err)
	}
}
