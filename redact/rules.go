package redact

import (
	"encoding/base64"
	"regexp"
	"strings"
	"sync"
)

// rule is one form of credential. Where one of its words stands in a text its pattern is tried. What is replaced
// is the group named secret (or secret1 ..) that took part, else the whole match: it may hold no quote and no lone
// backslash.
type rule struct {
	name   string
	words  []string // lower case
	re     *regexp.Regexp
	bound  bool                   // no letter, digit or _ stands before the word
	behind bool                   // the pattern begins behind the word
	long   bool                   // the pattern may need to see more than firstLook to match at all
	likely func(rest string) bool // nil, or a quick look at what the pattern would see
	ok     func(found) bool       // nil: every match counts
	secret []bool                 // by group: it holds what is replaced
}

func newRule(name, re string, words ...string) rule {
	r := rule{name: name, words: words, re: regexp.MustCompile("^(?:" + re + ")"), bound: true}
	for _, g := range r.re.SubexpNames() {
		r.secret = append(r.secret, strings.HasPrefix(g, "secret"))
	}
	return r
}

func (r rule) when(ok func(found) bool) rule       { r.ok = ok; return r }
func (r rule) anywhere() rule                      { r.bound = false; return r }
func (r rule) after() rule                         { r.bound, r.behind = false, true; return r }
func (r rule) where(likely func(string) bool) rule { r.likely = likely; return r }
func (r rule) far() rule                           { r.long = true; return r }

// words of what is secret; the whole name has to end in one of them.
var secretWords = func() []string {
	out := []string{"password", "passwd", "passphrase", "pwd", "secret", "token"}
	for _, w := range []string{"api", "secret", "access", "private", "auth", "encryption", "signing", "account"} {
		out = append(out, w+"key", w+"_key", w+"-key")
	}
	return out
}()

const end = `[^\s"'\\,;<>(){}\[\]` + "`" + `]`

// rules are made when the first text comes: most commands redact nothing, and their patterns take milliseconds.
var rules = sync.OnceValue(func() []rule {
	return []rule{
		newRule("private-key", `-----(?i:BEGIN) [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----(?:[A-Za-z0-9+/=\s]|\\+[nr]|[A-Za-z-]{2,20}: [^\n"\\]*)*(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----)?`,
			"-----begin ").anywhere().when(func(f found) bool { return len(f.secret) >= 80 }), // a marker alone is no key

		newRule("aws-key", `(?:AKIA|ASIA|ABIA|ACCA)[A-Z2-7]{16}\b`, "akia", "asia", "abia", "acca"),
		newRule("github-token", `(?:gh[pousr]_[A-Za-z0-9]{36,255}|github_pat_[A-Za-z0-9_]{22,255})\b`, "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"),
		newRule("gitlab-token", `gl[a-z]{2,5}-[A-Za-z0-9_.-]{20,}`, "glpat-", "gldt-", "glrt-", "glcbt-", "glptt-", "glft-", "gloas-", "glsoat-", "glagent-", "glimt-"),
		newRule("slack-token", `xox[abeposr]-[A-Za-z0-9-]{10,}|xapp-[0-9]-[A-Za-z0-9-]{20,}`, "xox", "xapp-"),
		newRule("slack-webhook", `hooks\.slack\.com/(?:services|workflows|triggers)/(?P<secret>[A-Za-z0-9+/_-]{20,})`, "hooks.slack.com/"),
		newRule("anthropic-key", `sk-ant-[A-Za-z0-9_-]{20,}`, "sk-ant-"),
		newRule("openai-key", `sk-[A-Za-z0-9_-]{20,}`, "sk-").when(func(f found) bool { return longRun(f.secret[3:], 16) && hasDigit(f.secret) }),
		newRule("google-key", `AIza[A-Za-z0-9_-]{35}|ya29\.[A-Za-z0-9_-]{20,}|GOCSPX-[A-Za-z0-9_-]{20,}`, "aiza", "ya29.", "gocspx-"),
		newRule("stripe-key", `(?:sk|rk)_(?:live|test)_[A-Za-z0-9]{16,}|whsec_[A-Za-z0-9+/=]{20,}`, "sk_live_", "sk_test_", "rk_live_", "rk_test_", "whsec_"),
		newRule("service-token", `npm_[A-Za-z0-9]{36}\b|pypi-[A-Za-z0-9_-]{50,}|hf_[A-Za-z0-9]{30,}\b|gsk_[A-Za-z0-9]{40,}\b|xai-[A-Za-z0-9]{40,}\b|do[opr]_v1_[a-f0-9]{64}\b|SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}|r8_[A-Za-z0-9]{30,}\b|dckr_pat_[A-Za-z0-9_-]{20,}`,
			"npm_", "pypi-", "hf_", "gsk_", "xai-", "dop_v1_", "doo_v1_", "dor_v1_", "sg.", "r8_", "dckr_pat_"),
		newRule("jwt", `eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*`, "eyj").far().where(func(s string) bool { return strings.Contains(s[:min(len(s), 4096)], ".eyJ") }),

		newRule("userinfo", `://(?P<secret>[^\s/?#@"'<>\\`+"`"+`]+)@[A-Za-z0-9.\[_-]`, "://").anywhere().when(userinfo),
		newRule("authorization", `(?i:authorization)(?P<key>\\*["'])?\s*[:=]\s*(?P<open>\\*["'])?(?i:(?:bearer|basic|token|digest|apikey|negotiate|aws4-hmac-sha256)\s+)?(?P<secret>`+end+`{8,})`, "authorization").when(func(f found) bool {
			return f.secret[0] != ':' && (f.group(1) == "" || f.group(2) != "") && !placeholder(f.secret) && (hasDigit(f.secret) || hasUpper(f.secret))
		}),
		newRule("bearer", `(?i:bearer)\s+(?P<secret>[A-Za-z0-9._~+/=-]{16,})`, "bearer").when(func(f found) bool {
			return hasDigit(f.secret) && !placeholder(f.secret)
		}),
		newRule("basic-auth", `(?i:basic)\s+(?P<secret>[A-Za-z0-9+/]{8,}={0,2})`, "basic").when(func(f found) bool {
			b, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(f.secret, "="))
			return err == nil && strings.Contains(string(b), ":")
		}),
		newRule("secret", `(?P<key>\\*["'])?\s*(?P<sep>:=|=>|==|[:=])\s*`+
			`(?:"(?P<secret1>(?:[^"\\]|\\.)+)"|'(?P<secret2>[^'"\\\n]+)'|\\+"(?P<secret3>[^"\\]+)\\+"|(?P<secret4>[^\s"'\\,;&(){}\[\]<>|`+"`"+`]{6,}))`,
			secretWords...).after().far().where(separated).when(assigned),
	}
})

// secretName returns what a member's name says that its value is: "secret", or "" for nothing.
func secretName(name string) string {
	low := strings.ToLower(name)
	for _, w := range secretWords {
		if strings.HasSuffix(low, w) && len(name) <= 64 && nameStart(name) == 0 {
			return "secret"
		}
	}
	if authorization(name) {
		return "authorization"
	}
	return ""
}

// separated reports whether s begins with what separates a name from its value.
func separated(s string) bool {
	i := 0
	for i < len(s) && s[i] == '\\' {
		i++
	}
	if i < len(s) && (s[i] == '"' || s[i] == '\'') {
		i++
	}
	for i < len(s) && (s[i] == ' ' || s[i] == '\t' || s[i] == '\n' || s[i] == '\r' || s[i] == '\f') {
		i++
	}
	return i < len(s) && (s[i] == ':' || s[i] == '=')
}

// nameStart returns where the name begins that s ends in.
func nameStart(s string) int {
	i := len(s)
	for i > 0 && (wordByte(s[i-1]) || s[i-1] == '-' || s[i-1] == '.') {
		i--
	}
	return i
}

func authorization(name string) bool {
	return strings.EqualFold(name, "authorization") || strings.EqualFold(name, "proxy-authorization")
}

// assigned judges NAME = VALUE.
func assigned(f found) bool {
	from := max(f.start-64, 0)
	name := f.text[from+nameStart(f.text[from:f.start]) : f.start]
	quoted, sep := f.group(1) != "", f.group(2)
	bare := f.m[2*6] >= 0
	switch {
	case sep == "==" && bare: // a comparison of code
		return false
	case bare && quoted: // in JSON that is a number or a word, in code a variable
		return false
	case strings.ContainsRune(" \t\n:,}]", rune(f.secret[0])): // what looks like a value is what stands between two strings
		return false
	case bare && code(f.secret, sep):
		return false
	case bare && !passwordLike(name) && !hasDigit(f.secret) && !hasUpper(f.secret): // a word of prose
		return false
	}
	return likelySecret(name, f.secret, !bare)
}

// passwordLike: people choose these, also as plain words.
func passwordLike(name string) bool {
	name = strings.ToLower(name)
	return strings.HasSuffix(name, "password") || strings.HasSuffix(name, "passwd") || strings.HasSuffix(name, "passphrase") || strings.HasSuffix(name, "pwd")
}

// likelySecret judges the value of something that is named like a secret.
func likelySecret(name, v string, quoted bool) bool {
	switch {
	case len(v) < 6 || strings.Contains(v, mark) || placeholder(v):
		return false
	case !quoted && !passwordLike(name) && digitsOnly(v): // a count of tokens
		return false
	case typeWords[strings.ToLower(strings.Trim(v, ".*?!"))]:
		return false
	case quoted && strings.ContainsAny(v, " \n") && !passwordLike(name) && !strings.EqualFold(name, "secret") && !authorization(name): // a sentence
		return false
	}
	return true
}

// typeWords stand where a program or a document says what kind of value belongs there.
var typeWords = func() map[string]bool {
	m := map[string]bool{}
	for _, w := range strings.Fields("string boolean number integer object secretstr undefined required optional default hidden private public " +
		"password passwd secret token example changeme redacted missing invalid expired incorrect forgotten prompt getpass function interface") {
		m[w] = true
	}
	return m
}()

// placeholder reports whether v stands for a value that is elsewhere.
func placeholder(v string) bool {
	low := strings.ToLower(v)
	for _, p := range []string{"$", "<", "{{", "${", "%", "...", "your", "my-", "env.", "env:", "process.env", "os.environ", "secrets.", "vault:", "/run/secrets", "file:", "-----"} {
		if strings.HasPrefix(low, p) {
			return true
		}
	}
	return strings.Count(v, v[:1]) == len(v) || strings.Trim(low, "x*.-_") == ""
}

// code reports whether an unquoted value is an expression.
func code(v, sep string) bool {
	return memberRE().MatchString(v) || sep == ":=" || sep == "=>" || strings.Contains(v, "://")
}

var memberRE = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[A-Za-z_]\w*(?:(?:\.|::|->)[A-Za-z_]\w*)+$`)
})

// userinfo judges what stands before the @ of a URL: user and password, or a long token alone.
func userinfo(f found) bool {
	i := f.at
	for i > 0 && (wordByte(f.text[i-1]) || strings.IndexByte("+.-", f.text[i-1]) >= 0) {
		i--
	}
	if i == f.at { // no scheme
		return false
	}
	user, password, two := strings.Cut(f.secret, ":")
	if !two {
		return len(user) >= 20 && hasDigit(user) && !placeholder(user)
	}
	return password != "" && !placeholder(password) || password == "" && len(user) >= 20
}

func hasDigit(s string) bool { return strings.ContainsAny(s, "0123456789") }

func hasUpper(s string) bool { return strings.ToLower(s) != s }

func digitsOnly(s string) bool { return strings.Trim(s, "0123456789_.,") == "" }

// longRun reports whether s has n letters and digits in a row.
func longRun(s string, n int) bool {
	run := 0
	for i := range len(s) {
		if c := s[i]; c == '-' || c == '_' {
			run = 0
		} else if run++; run >= n {
			return true
		}
	}
	return false
}
