package main_test

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
)

// damage ID flips a byte in the middle of a session's first segment.
func damage(ts *testscript.TestScript, neg bool, args []string) {
	path := filepath.Join(ts.Getenv("STRANDLINE_HOME"), "sessions", args[0], strings.Repeat("0", 20)+".jsonl")
	b, err := os.ReadFile(path)
	ts.Check(err)
	i := bytes.Index(b, []byte("user/message"))
	if i < 0 {
		ts.Fatalf("no user/message in %s", path)
	}
	b[i] ^= 1
	ts.Check(os.WriteFile(path, b, 0o600))
}

// newer ID makes the header of a session one of the next major format.
func newer(ts *testscript.TestScript, neg bool, args []string) {
	path := filepath.Join(ts.Getenv("STRANDLINE_HOME"), "sessions", args[0], "session.json")
	b, err := os.ReadFile(path)
	ts.Check(err)
	i := bytes.LastIndex(b, []byte(`,"sum":"`))
	body := bytes.Replace(b[:i], []byte(`{"format":1,`), []byte(`{"format":2,`), 1)
	sum := binary.BigEndian.AppendUint32(nil, crc32.Checksum(body, crc32.MakeTable(crc32.Castagnoli)))
	body = append(body, `,"sum":"`+base64.RawURLEncoding.EncodeToString(sum)+"\"}\n"...)
	ts.Check(os.WriteFile(path, body, 0o600))
}
