package record

import (
	"bytes"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/strandline-dev/strandline/session"
)

func TestExportLine(t *testing.T) {
	h := session.Header{Format: 1, ID: "abcd", CreatedAt: 5, Kind: session.KindRoot, Cwd: "/w"}
	three := 3
	for _, e := range []Export{
		{Header: h},
		{Header: h, Events: 12, Redacted: &three},
		{Header: h, Events: 2, Incomplete: "damaged at 2", Extra: []byte(`{"x":[1]}`)},
	} {
		line, err := AppendExport(nil, e)
		if err != nil {
			t.Fatal(err)
		}
		if !IsExport(line) || bytes.Count(line, []byte("\n")) != 1 {
			t.Fatalf("%s", line)
		}
		got, err := ParseExport(line)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if diff := cmp.Diff(e, got); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
		line = line[:len(line)-1]
		for i := range line {
			line[i] ^= 1
			var bad *Error
			if _, err := ParseExport(line); !errors.As(err, &bad) {
				t.Fatalf("byte %d of %s: %v", i, line, err)
			}
			line[i] ^= 1
		}
	}
	line, _ := AppendExport(nil, Export{Header: h, Events: 1})
	newer := appendSum(bytes.Replace(line[:len(line)-sumTailLen-1], []byte(`:1,"export`), []byte(`:2,"export`), 1), 0)
	var fe *FormatError
	if _, err := ParseExport(newer); !errors.As(err, &fe) || fe.Major != 2 {
		t.Errorf("a later format: %v", err)
	}
	if _, err := AppendExport(nil, Export{}); err == nil {
		t.Error("an empty header was accepted")
	}
}

func TestBlobLine(t *testing.T) {
	for _, content := range []string{`"a long text\n"`, `""`, `"`, ``, "\x00\xff", "two\nlines", `"not" valid "`, ` "x" `} {
		name := BlobName([]byte(content))
		line := AppendBlob(nil, name, []byte(content))
		if bytes.Count(line, []byte("\n")) != 1 || !IsBlob(line) {
			t.Fatalf("%q", line)
		}
		gotName, got, err := ParseBlob(line[:len(line)-1])
		if err != nil || gotName != name || string(got) != content {
			t.Errorf("%q: %q %q %v", line, gotName, got, err)
		}
		if _, _, err := ParseBlob(bytes.Replace(line[:len(line)-1], []byte("sha256-"), []byte("sha255-"), 1)); err == nil {
			t.Errorf("%q: a bad name was accepted", line)
		}
		for n := range line[:len(line)-1] {
			if _, _, err := ParseBlob(line[:n]); err == nil {
				t.Errorf("%q was accepted", line[:n])
			}
		}
	}
}

func TestFindBlobNames(t *testing.T) {
	a, b := BlobName([]byte("a")), BlobName([]byte("b"))
	var got []string
	err := FindBlobNames([]byte("sha256-"+a+" kept as "+b+". sha256-zz "+a[:60]), func(name string, _ int) error {
		got = append(got, name)
		return nil
	})
	if diff := cmp.Diff([]string{a, b}, got); diff != "" || err != nil {
		t.Error(diff, err)
	}
}
