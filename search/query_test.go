package search

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func parse(t rapid.TB, text string) Query {
	t.Helper()
	q, err := Parse(text)
	if err != nil {
		t.Fatalf("Parse(%q): %v", text, err)
	}
	return q
}

// TestMatch is what a query means. want holds what is marked, "" for no match.
func TestMatch(t *testing.T) {
	for _, c := range []struct{ query, text, want string }{
		{`cat`, `concatenate the cat`, "cat"},
		{`cat`, `concatenate`, ""},
		{`cat*`, `concat Category`, "Category"},
		{`*cat*`, `concatenate dogs`, "concatenate"},
		{`*nate`, `concatenate dogs`, "concatenate"},
		{`*nate`, `concatenated dogs`, ""},
		{`fix test`, `test the fix`, "test|fix"},
		{`"fix test"`, `test the fix`, ""},
		{`"the fix"`, "test the\n\t fix", "the\n\t fix"},
		{`"the fi*"`, "test the fix", "the fix"},
		{`"the fi"*`, "test the fix", "the fix"},
		{`*"st the"`, "test the fix", "test the"},
		{`path/to.go`, `open ./path/to.go now`, "path/to.go"},
		{`path/to.go`, `path or to go`, ""},
		{`snake_case`, `a SNAKE_CASE name`, "SNAKE_CASE"},
		{`case`, `a snake_case name`, "case"},
		{`camelCase`, `camelcase`, "camelcase"},
		{`don't`, `I don't`, "don't"},
		{`a a b`, `a b`, "a|a|b"}, // each term is looked for by itself
		{`"a a b"`, `a a a b`, "a a b"},
		{`"unclosed phrase`, `an unclosed phrase`, "unclosed phrase"},
		// Cases, accents, compatibility forms.
		{`RESUME`, `Résumé`, "Résumé"},
		{`naïve`, `NAIVE`, "NAIVE"},
		{`strasse`, `Straße STRASSE`, "Straße|STRASSE"},
		{`ＦＵＬＬ`, `full`, "full"},
		{`ﬁle`, `FILE`, "FILE"},
		{`ёлка`, `ЕЛКА`, "ЕЛКА"},
		{`σοφος`, `ΣΟΦΌΣ`, "ΣΟΦΌΣ"},
		{`İstanbul`, `istanbul`, "istanbul"},
		{`кот`, `котлета`, ""},
		{`кот*`, `котлета`, "котлета"},
		{`مرحبا`, `مَرْحَبًا`, "مَرْحَبًا"},
		{`שלום`, `שָׁלוֹם`, "שָׁלוֹם"},
		{`pass*`, "pass\u200bword", "pass\u200bword"}, // an invisible sign parts no word
		// Scripts without spaces.
		{`搜索`, `全文搜索引擎`, "搜索"},
		{`搜`, `全文搜索引擎`, "搜"},
		{`索搜`, `全文搜索引擎`, ""},
		{`搜索*`, `全文搜索`, "搜索"},
		{`Go语言`, `学习Go 语言`, "Go 语言"},
		{`カタカナ`, `ｶﾀｶﾅとひらがな`, "ｶﾀｶﾅ"},
		{`ガ`, `ｶﾞ`, "ｶﾞ"},
		{`カ`, `ガ`, ""}, // another letter, no accent
		{`データ`, `データベース`, "データ"},
		{`ภาษา`, `ภาษาไทย`, "ภาษา"},
		{`ไทย ภาษา`, `ภาษาไทย`, "ภาษา|ไทย"},
		{`한국`, `한국 한국어`, "한국"},
		{`한국*`, `한국어`, "한국어"},
		// Symbols.
		{`👍`, `ok 👍🏽 done`, "👍"},
		{`👩‍💻`, `a 👩‍💻 b`, "👩‍💻"},
		{`🇩🇪`, `x🇩🇪y`, "🇩🇪"},
		{`❤`, `❤️`, "❤️"},
		// No operators.
		{`a AND b`, `a b`, ""},
		{`a NEAR b`, `a near b`, "a|near|b"},
		{`-x ^y title:z`, `x y title z`, "x|y|title z"},
		{"a\x00b", "a b", "a b"},
		{"w\xffx", "w x", "w x"},
	} {
		var got []string
		q := parse(t, c.query)
		if hits := Found(q, []Text{{Text: c.text}}); hits != nil {
			for _, h := range hits[0] {
				got = append(got, c.text[h.Start:h.End])
			}
		}
		if s := strings.Join(got, "|"); s != c.want {
			t.Errorf("%q in %q: %q, want %q", c.query, c.text, s, c.want)
		}
	}
}

func TestTermsMayBeInDifferentTexts(t *testing.T) {
	q := parse(t, `bash "go test"`)
	texts := []Text{{Text: "bash"}, {Text: "command: go test ./..."}}
	if Found(q, texts) == nil {
		t.Error("not found over two texts")
	}
	if Found(q, texts[:1]) != nil || Found(parse(t, `"bash command"`), texts) != nil {
		t.Error("found though a term is in no text")
	}
}

func TestParseRefuses(t *testing.T) {
	for _, s := range []string{"", "  ", `""`, `***`, `"!? -- *"`, "\x00", "\xff", strings.Repeat("x", MaxQueryBytes+1), strings.Repeat("字", 257)} {
		if q, err := Parse(s); err == nil {
			t.Errorf("%.20q is a query: %v", s, q.Terms())
		}
	}
}

// Alphabet is where texts of many scripts are drawn from, with what is hard about them.
var alphabet = []rune("aAbBzZ09 \n\t._-/*\"'(){}:^éÉßñİıſK" + "а́ЯёйΣσς" + "中文搜索字" + "ひらガがｶﾞー" + "ไทยที่ภ" + "مَرْحابـ" + "שָׁל" + "한글" + "👍🏽👩‍💻🇩❤️" + "\u200b\u00ad\u202e\ufeff\ufffd①㎞㈱ﷺ½ﬁ𝔄")

func drawText(t *rapid.T, label string, n int) string {
	return string(rapid.SliceOfN(rapid.SampledFrom(alphabet), 0, n).Draw(t, label))
}

// TestUnits: words lie in order and apart, and folding is a projection.
func TestUnits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := drawText(t, "text", 60)
		at := 0
		Units(text, func(u Unit) bool {
			if u.Start < at || u.End <= u.Start || u.End > len(text) {
				t.Fatalf("%q: %d..%d behind %d", text, u.Start, u.End, at)
			}
			at = u.End
			if u.Folded == "" || !utf8.ValidString(u.Folded) || fold(u.Folded) != u.Folded {
				t.Fatalf("%q: %q folds to %q", text, u.Folded, fold(u.Folded))
			}
			if f := fold(text[u.Start:u.End]); f != u.Folded {
				t.Fatalf("%q: the fast way gives %q, the slow one %q", text, u.Folded, f)
			}
			for _, r := range u.Folded {
				if classOf(r) == gap || r < utf8.RuneSelf && classOf(r) != letter {
					t.Fatalf("%q: %q holds %q", text, u.Folded, r)
				}
			}
			return true
		})
	})
}

// TestFold: what is the same to a search is the same text, and what parts words stays.
func TestFold(t *testing.T) {
	for _, c := range [][2]string{
		{"Straße 1", "STRASSE 1"}, {"Caf\u00e9: a", "cafe\u0301: A"}, {"ｆｕｌｌ", "Full"}, {"Ёлка", "елка"}, {"a\u00a0b", "a b"}, {"\u2260", "=\u0338"},
	} {
		if a, b := Fold(c[0]), Fold(c[1]); a != b {
			t.Errorf("%q: %q, %q: %q", c[0], a, c[1], b)
		}
	}
	if got := Fold("Fix: (a-B) v1.2"); got != "fix: (a-b) v1.2" {
		t.Errorf("%q", got)
	}
}

// TestMatchFindsWhatIsThere: whatever words follow each other in a text are found as a phrase, and a part of a word with stars.
func TestMatchFindsWhatIsThere(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := drawText(t, "text", 60)
		var units []Unit
		Units(text, func(u Unit) bool {
			u.Folded = strings.Clone(u.Folded)
			units = append(units, u)
			return true
		})
		if len(units) == 0 {
			return
		}
		i := rapid.IntRange(0, len(units)-1).Draw(t, "from")
		j := rapid.IntRange(i, len(units)-1).Draw(t, "to")
		piece := strings.ReplaceAll(text[units[i].Start:units[j].End], `"`, " ")
		q := parse(t, `"`+piece+`"`)
		if !slices.ContainsFunc(Match(q, text), func(h Hit) bool {
			return h.Start <= units[i].Start && h.End >= units[i].End || h.Start >= units[i].Start
		}) {
			t.Fatalf("%q is not found in %q", piece, text)
		}
		if u := units[i]; !u.single {
			r := []rune(u.Folded)
			k := rapid.IntRange(0, len(r)-1).Draw(t, "cut")
			if part := string(r[k:]); classOf(r[k]) == letter && fold(part) == part && Match(parse(t, "*"+part), text) == nil {
				t.Fatalf("*%s is not found in %q", part, text)
			}
		}
	})
}

// TestSnippet: one line, whole signs, nothing that a terminal obeys, not longer than it should be; what is marked is a hit.
func TestSnippet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Repeat(drawText(t, "before", 30), rapid.IntRange(0, 9).Draw(t, "times")) + " needle " +
			strings.Repeat(drawText(t, "after", 30)+"\x1b[31m\a\r\n\u2028", rapid.IntRange(0, 9).Draw(t, "more"))
		s := Snip(text, Match(parse(t, "needle"), text))
		if !utf8.ValidString(s.Text) || strings.ContainsAny(s.Text, "\x1b\a\r\n\t\u202e\u2028\u200b") {
			t.Fatalf("%q", s.Text)
		}
		if n := utf8.RuneCountInString(s.Text); n > snippetSigns+4 {
			t.Fatalf("%d signs: %q", n, s.Text)
		}
		if len(s.Marks) == 0 || !strings.Contains(s.Marked("<", ">"), "<needle>") {
			t.Fatalf("not marked: %q %v", s.Text, s.Marks)
		}
	})
	for _, c := range []struct{ query, text, want string }{
		{"b", "a\n\n  b  c", "a <b> c"},
		{"two words", "words of\ttwo", "<words> of <two>"},
		{`"two words"`, "x two \n words y", "x <two words> y"},
		{"x*", strings.Repeat("x", 100), "<" + strings.Repeat("x", 64) + "…>"},
		{"end", strings.Repeat("word ", 40) + "end", "…" + strings.Repeat("word ", 9) + "<end>"},
		{"start", "start " + strings.Repeat("word ", 100), "<start> " + strings.Repeat("word ", 30) + "word…"},
	} {
		got := Snip(c.text, Match(parse(t, c.query), c.text)).Marked("<", ">")
		if got != c.want {
			t.Errorf("%q: %q, want %q", c.query, got, c.want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(`a "b c" d* *e*`, "a b c dd eee")
	f.Add("\"", "\xff\x00")
	f.Fuzz(func(t *testing.T, query, text string) {
		q, err := Parse(query)
		if err != nil {
			return
		}
		for _, h := range Match(q, text) {
			if h.Start < 0 || h.End > len(text) || h.Start >= h.End {
				t.Fatalf("%+v of %d", h, len(text))
			}
		}
		Snip(text, Match(q, text))
	})
}
