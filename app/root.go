package app

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
)

// EnvHome is the environment variable that names the store's directory.
const EnvHome = "STRANDLINE_HOME"

// EnvCheckFolds, if set to a number n, makes this program hold every n-th checkpoint that it opens a session behind to a
// fold of the whole log, and refuse to go on if the two differ. It is for tests, and costs what a checkpoint saves.
const EnvCheckFolds = "STRANDLINE_CHECK_FOLDS"

// checkFold reports whether a checkpoint is to be checked.
func checkFold() bool {
	n, err := strconv.Atoi(os.Getenv(EnvCheckFolds))
	return err == nil && n > 0 && rand.IntN(n) == 0
}

// StoreRoot returns the absolute directory of the store: flag if it is not empty, else $STRANDLINE_HOME,
// else the platform's directory for user data + "/strandline".
func StoreRoot(flag string) (string, error) {
	dir, from := flag, "--store"
	if dir == "" {
		dir, from = os.Getenv(EnvHome), EnvHome
	}
	if dir == "" {
		base, err := dataDir()
		if err != nil {
			return "", &UsageError{"store", err.Error(), "name a directory with --store DIR or " + EnvHome}
		}
		return filepath.Join(base, "strandline"), nil
	}
	if scheme, _, ok := strings.Cut(dir, "://"); ok {
		u, err := url.Parse(dir)
		if err != nil || scheme != "file" || u.Host != "" && u.Host != "localhost" || u.Path == "" {
			return "", &UsageError{from + " " + dir, "no store of this kind is known", "give a directory or file:///DIRECTORY"}
		}
		dir = filepath.FromSlash(u.Path)
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", &UsageError{from + " " + dir, err.Error(), "give an absolute directory"}
	}
	if fi, err := os.Stat(abs); err == nil && !fi.IsDir() {
		return "", &UsageError{from + " " + dir, "it is not a directory", "give the directory of a store, or one that does not exist yet"}
	}
	return abs, nil
}

func dataDir() (string, error) {
	if runtime.GOOS == "darwin" {
		home, err := homeDir()
		return filepath.Join(home, "Library", "Application Support"), err
	}
	if d := os.Getenv("XDG_DATA_HOME"); filepath.IsAbs(d) {
		return d, nil
	}
	home, err := homeDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(home, ".local", "share"), nil
}

func homeDir() (string, error) {
	home, err := os.UserHomeDir()
	switch {
	case err != nil:
		return "", fmt.Errorf("no home directory: %w", err)
	case !filepath.IsAbs(home):
		return "", fmt.Errorf("the home directory %q is not an absolute path", home)
	}
	return home, nil
}

func absDir(dir string) (string, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	fi, err := os.Stat(abs)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", errors.New("there is no such directory")
	case err != nil:
		return "", err
	case !fi.IsDir():
		return "", errors.New("it is not a directory")
	}
	return abs, nil
}
