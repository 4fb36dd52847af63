package builtin

import (
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"github.com/strandline-dev/strandline/tool"
)

// A file that its user may not write is not replaced, although the directory would permit it.
func TestPermission(t *testing.T) {
	b := newBench(t, map[string]string{"readonly": "old", "hidden": "old", "d/x": "old", "shared/y": "old"})
	for name, mode := range map[string]os.FileMode{"readonly": 0o444, "hidden": 0o200, "d": 0o555, "shared": 0o777, ".": 0o777} {
		if err := os.Chmod(filepath.Join(b.root, name), mode); err != nil {
			t.Fatal(err)
		}
	}
	if os.Getuid() == 0 {
		for dir := filepath.Dir(b.root); dir != filepath.Clean(os.TempDir()) && dir != "/"; dir = filepath.Dir(dir) {
			if err := os.Chmod(dir, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		// This thread is somebody else for the file system during the test.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer syscall.Setfsuid(0)
		if err := syscall.Setfsuid(65534); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.ReadDir(b.root); err != nil { // TMPDIR itself may be closed to others
		t.Skip("another user cannot see the temporary directory: ", err)
	}
	b.fails("write", args{"path": "readonly", "content": "new"}, tool.CodeFailed, "readonly: permission denied")
	b.fails("edit", args{"path": "readonly", "oldString": "old", "newString": "new"}, tool.CodeFailed, "permission denied")
	b.fails("read", args{"path": "hidden"}, tool.CodeFailed, "permission denied")
	b.fails("write", args{"path": "d/new", "content": "new"}, tool.CodeFailed, "permission denied")
	want(t, b.file("readonly"), "old")
	want(t, b.ok("grep", args{"pattern": "old", "path": "."}), "d/x:1: old\nreadonly:1: old\nshared/y:1: old\n[1 file too large or not readable]\n")
	b.ok("write", args{"path": "shared/new", "content": "new"})
}
