package brief_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/clipperhouse/uax29/v2/graphemes"
	"pgregory.net/rapid"

	"github.com/strandline-dev/strandline/brief"
	"github.com/strandline-dev/strandline/message"
)

const (
	digits = "0123456789012345678901234567890123456789012345678901234567890123456789"
	family = "👩\u200d👩\u200d👧\u200d👦" // 7 runes, one sign
)

func TestTitle(t *testing.T) {
	for name, c := range map[string]struct{ in, want string }{
		"short":                        {"fix the bug", "fix the bug"},
		"controls and directions":      {"  a\n\tb \u202e c\x00d \u200b", "a b cd"},
		"direction marks in a word":    {"a\u200eb\u200f \u202dc\u202c \u2066d\u2069", "ab c d"},
		"a long word":                  {digits, digits[:59] + "…"},
		"a long word behind a word":    {"word " + digits, "word…"},
		"nothing":                      {"", ""},
		"white space":                  {" \n\t\u00a0\u3000\r\n", ""},
		"only direction marks":         {"\u202e\u200f", ""},
		"only joiners":                 {"\u200d \u200c\u200d", ""},
		"only marks":                   {"\u0301 \u200d\u0301", ""},
		"not text":                     {"\xff\xfe", ""},
		"just fits":                    {digits[:60], digits[:60]},
		"the last word just fits":      {digits[:55] + " abcd", digits[:55] + " abcd"},
		"the last word does not fit":   {digits[:55] + " abcde", digits[:55] + "…"},
		"a long word and more":         {digits[:60] + " more", digits[:59] + "…"},
		"a word up to the mark":        {digits[:59] + " more", digits[:59] + "…"},
		"code":                         {"```go\nfunc main() {}\n```", "```go func main() {} ```"},
		"a family":                     {"who are " + family + "?", "who are " + family + "?"},
		"a family at the cut":          {digits[:55] + family, digits[:55] + "…"},
		"a family up to the cut":       {digits[:52] + family + "abc", digits[:52] + family + "…"},
		"families":                     {strings.Repeat(family, 20), strings.Repeat(family, 8) + "…"},
		"flags":                        {"a" + strings.Repeat("🇫🇷", 40), "a" + strings.Repeat("🇫🇷", 29) + "…"},
		"flags, odd":                   {strings.Repeat("🇫🇷", 40), strings.Repeat("🇫🇷", 29) + "…"},
		"a skin at the cut":            {digits[:58] + "👍🏽👍🏽", digits[:58] + "…"},
		"marks":                        {strings.Repeat("e\u0301", 40), strings.Repeat("e\u0301", 29) + "…"},
		"one sign that is too long":    {"a" + strings.Repeat("\u0301", 100), "a" + strings.Repeat("\u0301", 58) + "…"},
		"Persian":                      {"می\u200cخواهم \u200cکتاب\u200c", "می\u200cخواهم کتاب"},
		"Indic":                        {"क्\u200dष \u200d क\u200d", "क्\u200dष क"},
		"joiners in a row":             {"a\u200d\u200c\u200db", "a\u200db"},
		"a joiner around what is left": {"a\u200d\u202e b", "a b"},
		"right to left":                {"תקן את הבאג \u202bבקובץ\u202c", "תקן את הבאג בקובץ"},
		"no spaces":                    {strings.Repeat("修复这个错误", 20), strings.Repeat("修复这个错误", 9) + "修复这个错" + "…"},
		"no spaces behind a word":      {"bug: " + strings.Repeat("修复", 40), "bug: " + strings.Repeat("修复", 27) + "…"},
	} {
		got := brief.Title(message.User("u", c.in))
		if got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
		if n := utf8.RuneCountInString(got); n > 60 {
			t.Errorf("%s has %d runes", name, n)
		}
	}
	if m := (message.Message{Role: message.RoleUser, Content: message.User("u", "said").Content}); brief.Title(m) != "" {
		t.Error("what nobody said names a session")
	}
	image := message.User("u", "")
	image.Content = []message.Block{{Type: message.Image}}
	if got := brief.Title(image); got != "" {
		t.Errorf("an image alone: %q", got)
	}
}

// Of a text of any length a title costs what the title is long, whatever the text is made of.
func TestTitleOfMuch(t *testing.T) {
	for name, text := range map[string]string{
		"words":    strings.Repeat("word ", 2<<20),
		"one word": strings.Repeat("x", 10<<20),
		"marks":    "x" + strings.Repeat("\u0301", 5<<20),
	} {
		if n := testing.AllocsPerRun(1, func() { brief.TitleOf(text) }); n > 20 {
			t.Errorf("%s: %v allocations", name, n)
		}
		if got := brief.TitleOf(text); utf8.RuneCountInString(got) > 60 || !strings.HasSuffix(got, "…") {
			t.Errorf("%s: %q", name, got)
		}
	}
	if got := brief.TitleOf(strings.Repeat("\u202e \u200d", 1<<17) + "end"); got != "end" {
		t.Errorf("%q", got)
	}
}

// A title and a text that is cut hold whole signs of what they are made of, and a title is a title of itself.
func TestWholeSigns(t *testing.T) {
	parts := []string{"a", "bc", " ", "e\u0301", family, "🇫🇷", "👍🏽", "क्\u200dष", "می\u200cخ", "修复", "\u202e", "\u200d", "\n", "ก็", "각", "\u1112\u1161\u11ab"}
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Join(rapid.SliceOfN(rapid.SampledFrom(parts), 0, 60).Draw(t, "text"), "")
		title := brief.TitleOf(text)
		if utf8.RuneCountInString(title) > 60 || !utf8.ValidString(title) || strings.Contains(title, "  ") {
			t.Fatalf("%q", title)
		}
		if again := brief.TitleOf(title); again != title {
			t.Fatalf("the title of %q is %q", title, again)
		}
		n := rapid.IntRange(8, 70).Draw(t, "n") // no sign above is longer
		got := brief.Clip(text, n)
		if utf8.RuneCountInString(got) > n {
			t.Fatalf("%q is longer than %d", got, n)
		}
		if got == text {
			return
		}
		head, cut := strings.CutSuffix(got, "…")
		if !cut || !strings.HasPrefix(text, head) {
			t.Fatalf("%q of %q", got, text)
		}
		ends := map[int]bool{0: true}
		for g := graphemes.FromString(text); g.Next(); {
			ends[len(strings.TrimRight(text[:g.End()], "\u200d\u200c"))] = true
		}
		if !ends[len(head)] {
			t.Fatalf("%q of %q ends within a sign", got, text)
		}
	})
}
