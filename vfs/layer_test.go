package vfs

import (
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// seen is all that fsys shows below root, by names: directories, and files with their content.
func seen(t *testing.T, fsys FS, root string) map[string]string {
	t.Helper()
	out := map[string]string{}
	var walk func(dir string)
	walk = func(dir string) {
		list, err := fsys.ReadDir(dir)
		ok(t, err)
		for _, d := range list {
			name := filepath.Join(dir, d.Name())
			rel, _ := filepath.Rel(root, name)
			info, err := fsys.Stat(name)
			ok(t, err)
			if info.IsDir() != d.IsDir() || info.Name() != d.Name() {
				t.Fatalf("%s: listed as %s, %v", name, d.Name(), d.IsDir())
			}
			if info.IsDir() {
				out[rel] = "a directory"
				walk(name)
				continue
			}
			f, err := fsys.OpenFile(name, ReadOnly)
			ok(t, err)
			b := make([]byte, info.Size())
			f.ReadAt(b, 0)
			f.Close()
			out[rel] = string(b)
		}
	}
	walk(root)
	return out
}

// Whatever is done to a layer: it shows what the same would have made of its base, which stays as it was.
func TestLayerShowsWhatWouldBe(t *testing.T) {
	for seed := range uint64(30) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		roots := []string{t.TempDir(), t.TempDir()} // one is changed, one has the layer above it
		for _, root := range roots {
			for _, n := range []string{"a/b/c", "a/d", "e"} {
				ok(t, os.MkdirAll(filepath.Join(root, filepath.Dir(n)), 0o700))
				ok(t, os.WriteFile(filepath.Join(root, n), []byte("this is "+n), 0o600))
			}
		}
		before := seen(t, OS(), roots[1])
		fsys := []FS{OS(), Layer(OS())}
		var names []string
		for _, x := range []string{"a", "e", "n"} {
			for _, y := range []string{"", "/b", "/d", "/m"} {
				names = append(names, x+y, x+y+"/c")
			}
		}
		for step := range 60 {
			what := rnd.IntN(6)
			one, two := names[rnd.IntN(len(names))], names[rnd.IntN(len(names))]
			var done [2]bool
			for i := range fsys {
				x, y := filepath.Join(roots[i], one), filepath.Join(roots[i], two)
				var err error
				switch what {
				case 0:
					err = fsys[i].Link(x, y)
				case 1, 2:
					err = fsys[i].RenameNoReplace(x, y)
				case 3:
					err = fsys[i].Remove(x)
				case 4:
					err = fsys[i].Mkdir(x)
				default:
					var f File
					if f, err = fsys[i].OpenFile(x, CreateAppend); err == nil {
						fmt.Fprint(f, "made at ", step)
						f.Close()
					}
				}
				done[i] = err == nil
			}
			at := fmt.Sprintf("seed %d, step %d: call %d of %s and %s", seed, step, what, one, two)
			if done[0] != done[1] {
				t.Fatalf("%s: done: %v, to a layer: %v", at, done[0], done[1])
			}
			if want, got := seen(t, fsys[0], roots[0]), seen(t, fsys[1], roots[1]); !maps.Equal(want, got) {
				t.Fatalf("%s: the layer shows %v, want %v", at, got, want)
			}
		}
		if now := seen(t, OS(), roots[1]); !maps.Equal(now, before) {
			t.Fatalf("seed %d: what is below the layer became %v", seed, slices.Sorted(maps.Keys(now)))
		}
	}
}

// A name of the layer and the file of base that it leads to are the same file; another with the same text is not.
func TestLayerKnowsFiles(t *testing.T) {
	root := t.TempDir()
	x, y, z := filepath.Join(root, "x"), filepath.Join(root, "y"), filepath.Join(root, "z")
	ok(t, os.WriteFile(x, []byte("text"), 0o600))
	l := Layer(OS())
	ok(t, l.Link(x, y))
	f, err := l.OpenFile(z, CreateAppend)
	ok(t, err)
	defer f.Close()
	stat := func(name string) fs.FileInfo {
		i, err := l.Stat(name)
		ok(t, err)
		return i
	}
	own, err := f.Stat()
	ok(t, err)
	if !l.SameFile(stat(x), stat(y)) || l.SameFile(stat(x), stat(z)) || !l.SameFile(own, stat(z)) {
		t.Error("files are confused")
	}
	// Who writes below is seen; the layer's own locks are not below it.
	w, err := OS().OpenFile(x, ReadWrite)
	ok(t, err)
	defer w.Close()
	r, err := l.OpenFile(y, ReadWrite)
	ok(t, err)
	defer r.Close()
	if got, err := r.TryLock(true); !got || err != nil {
		t.Errorf("a lock in the layer: %v, %v", got, err)
	}
	if got, err := w.TryLock(true); !got || err != nil {
		t.Errorf("it is one below it: %v, %v", got, err)
	}
	if yes, err := r.HasWriter(); !yes || err != nil {
		t.Errorf("who writes below is not seen: %v, %v", yes, err)
	}
}
