package redact

import "strings"

// boundary reports whether a word may begin behind s. Where text is quoted in text, what looks like a letter
// may be the end of an escape: of a line end in a tool's arguments, of a colour in a terminal's output.
func boundary(s string) bool {
	n := len(s)
	if n == 0 || !wordByte(s[n-1]) {
		return true
	}
	if n >= 2 && s[n-2] == '\\' && strings.IndexByte("nrtbfv", s[n-1]) >= 0 {
		return true
	}
	if n >= 6 && s[n-6] == '\\' && s[n-5] == 'u' && strings.Trim(s[n-4:], "0123456789abcdefABCDEF") == "" {
		return true
	}
	if c := s[n-1] | 0x20; c < 'a' || 'z' < c {
		return false
	}
	i := strings.LastIndexByte(s[max(n-24, 0):n], '[')
	if i < 0 {
		return false
	}
	i += max(n-24, 0)
	if strings.Trim(s[i+1:n-1], "0123456789;?") != "" {
		return false
	}
	intro := strings.ToLower(s[max(i-6, 0):i])
	for _, esc := range []string{"\x1b", `\u001b`, `\x1b`, `\033`, `\e`} {
		if strings.HasSuffix(intro, esc) {
			return true
		}
	}
	return false
}
