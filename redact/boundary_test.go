package redact

import (
	"strings"
	"testing"
)

// A credential behind the end of an escape is one, behind a letter it is a part of a word.
func TestBehindEscapes(t *testing.T) {
	key := "sk-proj-" + strings.Repeat("a1B2c3D4e5", 4)
	for before, found := range map[string]bool{
		"": true, " ": true, `echo\n`: true, `a\\n`: true, `\t`: true, `\u000a`: true, "\x1b[31m": true, `\u001b[1;31m`: true,
		`\x1b[m`: true, `\033[0K`: true, `\e[1m`: true,
		"n": false, "[31m": false, "x[a]": true, "a[1]b": false, "desk": false, `\u00zza`: false,
	} {
		text, _ := Redactor{}.Text(before + key)
		if got := !strings.Contains(text, key); got != found {
			t.Errorf("%q: found %t, want %t", before, got, found)
		}
	}
}
