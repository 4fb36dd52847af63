package redact

import (
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"pgregory.net/rapid"
)

// rep is a text of n signs that looks random and is none.
func rep(s string, n int) string { return strings.Repeat(s, n/len(s)+1)[:n] }

// secrets are whole credentials, put together here so that no scanner takes this file for a leak.
var secrets = map[string]string{
	"aws":          "AKIA" + "IOSFODNN7EXAMPLE",
	"aws temp":     "ASIA" + "Y34FZKBOKMUTVV7A",
	"github":       "ghp_" + rep("a1B2c3D4e5", 36),
	"github new":   "github_pat_" + rep("11ABCDEFG0_a1B2c3", 82),
	"gitlab":       "glpat-" + rep("xY3-z_9", 20),
	"slack":        "xoxb-" + "123456789012-123456789012-" + rep("aB3", 24),
	"slack app":    "xapp-1-" + "A0123456789-1234567890123-" + rep("0a1b", 64),
	"openai":       "sk-" + rep("a1B2c3D4e5F6g7H8", 48),
	"openai new":   "sk-proj-" + rep("a1B2c3D4e5F6g7H8_-", 120),
	"deepseek":     "sk-" + rep("0123456789abcdef", 32),
	"openrouter":   "sk-or-v1-" + rep("0123456789abcdef", 64),
	"anthropic":    "sk-ant-api03-" + rep("a1B2c3_D4-", 95),
	"google":       "AIza" + rep("SyA1b2C3-d4_", 35),
	"google oauth": "ya29." + rep("a0AfH6SMB_x-9", 60),
	"stripe":       "sk_live_" + rep("4eC39HqLyjWDarjt", 24),
	"stripe hook":  "whsec_" + rep("a1B2c3D4", 32),
	"npm":          "npm_" + rep("a1B2c3", 36),
	"hugging":      "hf_" + rep("aBcDeFgH", 34),
	"groq":         "gsk_" + rep("a1B2c3D4", 52),
	"sendgrid":     "SG." + rep("a1B2c3_-", 22) + "." + rep("a1B2c3_-", 43),
	"jwt":          "eyJhbGciOiJIUzI1NiJ9" + "." + "eyJzdWIiOiIxMjM0NTY3ODkwIn0" + "." + rep("dozjgNryP4J3jVmN_-", 43),
}

const pem = "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00FF\n\nMIIEowIBAAKCAQEA1c7+9z5Pad7OejecsQ0bu3aumOBwQ0yQWzkm\nTGDlIqz+1z2f4vQ=\n-----END RSA PRIVATE KEY-----"

func TestFound(t *testing.T) {
	for name, s := range secrets {
		for _, frame := range []string{"%", "key is %.", `{"a":"%"}`, "export X=%\n", "(%)", "'%'", "\t%\t", "https://h/?k=%&b=1", "a,%,b"} {
			in := strings.Replace(frame, "%", s, 1)
			out, n := Redactor{}.Text(in)
			if n == 0 || strings.Contains(out, s) || strings.Contains(out, s[len(s)/2:]) {
				t.Errorf("%s in %q: %q (%d)", name, frame, out, n)
			}
		}
	}
	for in, want := range map[string]string{
		"x " + pem + " y": "x [redacted:private-key] y",
		`{"k":"` + strings.ReplaceAll(pem, "\n", `\n`) + `","b":1}`:    `{"k":"[redacted:private-key]","b":1}`,
		strings.TrimSuffix(pem, "-----END RSA PRIVATE KEY-----") + "!": "[redacted:private-key]!", // cut off
		"password=hunter2":             "password=[redacted:secret]",
		"PGPASSWORD=correcthorse psql": "PGPASSWORD=[redacted:secret] psql",
		"password: hunter2\nuser: me":  "password: [redacted:secret]\nuser: me",
		`password = "two words"`:       `password = "[redacted:secret]"`,
		`{"password": "ab\"cd\\e"}`:    `{"password": "[redacted:secret]"}`,
		`{'password': 'hunter2'}`:      `{'password': '[redacted:secret]'}`,
		`{\"password\":\"hunter2\"}`:   `{\"password\":\"[redacted:secret]\"}`,
		"aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY": "aws_secret_access_key = [redacted:secret]",
		"client_secret: 8f14e45fceea167a":                                  "client_secret: [redacted:secret]",
		"API_KEY=abc123def456":                                             "API_KEY=[redacted:secret]",
		"x-api-key: abc123def456":                                          "x-api-key: [redacted:secret]",
		"--token=abc123def456 --verbose":                                   "--token=[redacted:secret] --verbose",
		"csrf-token: Abcdef":                                               "csrf-token: [redacted:secret]",
		"postgres://me:hunter2@db:5432/x":                                  "postgres://[redacted:userinfo]@db:5432/x",
		"https://" + rep("a1", 40) + "@github.com/x.git":                   "https://[redacted:userinfo]@github.com/x.git",
		"redis://:hunter2@127.0.0.1":                                       "redis://[redacted:userinfo]@127.0.0.1",
		"Authorization: Bearer abc123def456ghi":                            "Authorization: Bearer [redacted:authorization]",
		"authorization: Basic dXNlcjpwYXNz":                                "authorization: Basic [redacted:authorization]",
		`-H "Authorization: token abc123def456"`:                           `-H "Authorization: token [redacted:authorization]"`,
		`"Authorization": "Bearer abc123def456"`:                           `"Authorization": "Bearer [redacted:authorization]"`,
		"send Bearer abc123def456ghi7 with it":                             "send Bearer [redacted:bearer] with it",
		"with basic dXNlcjpwYXNzd29yZA== always":                           "with basic [redacted:basic-auth] always",
		"https://hooks.slack.com/services/T0/B0/" + rep("aB3", 24):         "https://hooks.slack.com/services/[redacted:slack-webhook]",
	} {
		out, n := Redactor{}.Text(in)
		if out != want || n == 0 {
			t.Errorf("%q\n got %q (%d)\nwant %q", in, out, n, want)
		}
	}
}

func TestLeftAlone(t *testing.T) {
	for _, s := range []string{
		"", "token", "password", "the password: was wrong", "token: something else", "a secret: nobody knows",
		"max_tokens=100", "inputTokens: 250", `{"outputTokens":30,"totalTokens":123456}`, "tokens=123456", "token: 123456",
		"func Token(password string) error", "password: string", "password string `json:\"password\"`", "token: Optional[str]",
		`password = os.environ["DB_PASSWORD"]`, "password = process.env.PASSWORD", "token=$TOKEN", "token=${TOKEN}", "password=%s", "password: {{ .Values.password }}",
		"password: <your password>", "password=********", "API_KEY=xxxxxxxx", "api_key=your-key-here", "if password == other {",
		"password := getPassword()", "self.token = token", "token=self.token", "this.password = options.password", "secret: env.SECRET",
		"token_type=bearer1234", "password_file=/etc/pw.txt", "tokenizer: gpt2-large", "secretary: Smith99", "passwords: Many12",
		"sk-learn", "sk-estimator-checks-for-the-2024-release", "task-0123456789abcdef", "the sk- prefix", "sk_test_", "ghp_short", "AKIA", "AKIAabc",
		"https://example.com/a@b", "ssh://git@github.com/x.git", "git@github.com:x/y.git", "https://example.com/?q=a:b@c", "mailto:me@example.com", "http://[::1]:80/", "https://user@example.com",
		"Authorization: required", "Authorization header", "bearer authentication is needed here", "basic understanding of things", "Basic authentication",
		"-----BEGIN PRIVATE KEY-----", "-----BEGIN CERTIFICATE-----\nMIIEowIBAAKCAQEA\n-----END CERTIFICATE-----", `strings.Contains(s, "-----BEGIN RSA PRIVATE KEY-----")`,
		"eyJhbGciOiJIUzI1NiJ9", "eyJ.eyJ.x", "sha256-0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
		"d41d8cd98f00b204e9800998ecf8427e", "7f3kq2m9x4c8v1b6n0z5", "550e8400-e29b-41d4-a716-446655440000", "call_a1B2c3D4e5F6g7H8i9J0",
		"[redacted:secret]", "password=[redacted:secret]", `{"password":"[redacted:secret]"}`, "https://[redacted:userinfo]@x.y",
		`{"Authorization': ":-2517864064507898}`, `{"cmd":"echo password:","next":{"aaaaaaaa":1}}`, `{"a":"token=","bbbbbbbb":"cccccccc"}`,
	} {
		if out, n := (Redactor{}).Text(s); n != 0 || out != s {
			t.Errorf("%q became %q", s, out)
		}
	}
}

func TestJSON(t *testing.T) {
	gh := secrets["github"]
	for in, want := range map[string]string{
		`{"a":"x ` + gh + `","n":1e0,"u":"\u0041\/"}`:                                   `{"a":"x [redacted:github-token]","n":1e0,"u":"\u0041\/"}`,
		`{"password":"hunter2","b":[1,"` + gh + `"]}`:                                   `{"password":"[redacted:secret]","b":[1,"[redacted:github-token]"]}`,
		`{"arguments":"{\"password\":\"hunt\\\"er2\",\"n\":1}"}`:                        `{"arguments":"{\"password\":\"[redacted:secret]\",\"n\":1}"}`,
		`{"arguments":"{\"c\":\"curl -H 'Authorization: Bearer abc123def456ghi' x\"}"}`: `{"arguments":"{\"c\":\"curl -H 'Authorization: Bearer [redacted:authorization]' x\"}"}`,
		`{"Authorization":"Bearer abc"}`:                                                `{"Authorization":"[redacted:authorization]"}`,
		`{"pass\u0077ord":"hunter2"}`:                                                   `{"pass\u0077ord":"[redacted:secret]"}`,
		`{ "token" : "abc 123" , "x" : "y" }`:                                           `{ "token" : "abc 123" , "x" : "y" }`,
		`{ "token" : "abc123xyz" , "x" : "y" }`:                                         `{ "token" : "[redacted:secret]" , "x" : "y" }`,
		`{"secret":{"a":"plain"},"token":5,"password":["abcdefg"],"pwd":null}`:          `{"secret":{"a":"plain"},"token":5,"password":["abcdefg"],"pwd":null}`,
		`{"` + gh + `":1}`: `{"` + gh + `":1}`, // names stay: two of them could become one
		`"` + gh + `"`:     `"[redacted:github-token]"`,
		`12`:               `12`,
	} {
		out, n := Redactor{}.JSON(jsontext.Value(in))
		if string(out) != want || n == 0 != (in == want) {
			t.Errorf("%s\n got %s (%d)\nwant %s", in, out, n, want)
		}
	}
}

// pieces are what texts of the property tests are made of.
var pieces = func() []string {
	out := []string{"password", "=", ": ", ":", `"`, `'`, `\`, "\n", " ", "token", "secret_key", "Authorization", "Bearer ", "basic ", "://", "@", "me:", "hunter22", ",", "{", "}", "[", "]",
		"[redacted:", "secret", "sk-", "é", "\u2028", "-----", "http", "x", "9", "\\n", "\\\"", pem, "-----BEGIN RSA PRIVATE KEY-----", "-----END RSA PRIVATE KEY-----"}
	for _, name := range []string{"aws", "github", "openai", "jwt", "slack", "stripe"} {
		out = append(out, secrets[name])
	}
	return out
}()

func drawText(t *rapid.T) string {
	return strings.Join(rapid.SliceOfN(rapid.SampledFrom(pieces), 0, 12).Draw(t, "text"), "")
}

func drawValue(t *rapid.T, depth int) any {
	switch k := rapid.IntRange(0, 5).Draw(t, "kind"); {
	case k == 0 && depth > 0:
		m := map[string]any{}
		for range rapid.IntRange(0, 3).Draw(t, "members") {
			m[drawText(t)] = drawValue(t, depth-1)
		}
		return m
	case k == 1 && depth > 0:
		var l []any
		for range rapid.IntRange(0, 3).Draw(t, "elements") {
			l = append(l, drawValue(t, depth-1))
		}
		return l
	case k == 2:
		return rapid.Float64Range(-1e6, 1e6).Draw(t, "number")
	case k == 3 && depth > 0: // JSON in a string, as in the arguments of a call
		b, err := json.Marshal(drawValue(t, depth-1))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	return drawText(t)
}

// sameShape reports what differs beside string values; strings that are JSON have to stay JSON.
func sameShape(a, b any) string {
	switch x := a.(type) {
	case string:
		y, ok := b.(string)
		if !ok || jsontext.Value(x).IsValid() && !jsontext.Value(y).IsValid() {
			return "the string " + x
		}
	case []any:
		y, ok := b.([]any)
		if !ok || len(x) != len(y) {
			return "a list"
		}
		for i := range x {
			if s := sameShape(x[i], y[i]); s != "" {
				return s
			}
		}
	case map[string]any:
		y, ok := b.(map[string]any)
		if !ok || len(x) != len(y) {
			return "an object"
		}
		for k := range x {
			if _, ok := x[k].(string); ok && secretName(k) != "" {
				continue // may be replaced whole
			}
			if s := sameShape(x[k], y[k]); s != "" {
				return s
			}
		}
	default:
		if a != b {
			return "a value"
		}
	}
	return ""
}

func checkJSON(t interface {
	Fatalf(format string, args ...any)
}, in []byte) {
	out, n := Redactor{}.JSON(in)
	if !out.IsValid() {
		t.Fatalf("%q became %q, which is no JSON", in, out)
	}
	if n == 0 && string(out) != string(in) {
		t.Fatalf("%q became %q, and nothing was counted", in, out)
	}
	var a, b any
	if json.Unmarshal(in, &a) != nil || json.Unmarshal(out, &b) != nil {
		t.Fatalf("%q became %q, which cannot be read", in, out)
	}
	if s := sameShape(a, b); s != "" {
		t.Fatalf("%q became %q: %s changed", in, out, s)
	}
	if again, k := (Redactor{}).JSON(out); k != 0 || string(again) != string(out) {
		t.Fatalf("%q became %q, and then %q", in, out, again)
	}
}

func checkText(t interface {
	Fatalf(format string, args ...any)
}, in string) {
	out, n := Redactor{}.Text(in)
	if n == 0 && out != in {
		t.Fatalf("%q became %q, and nothing was counted", in, out)
	}
	if again, k := (Redactor{}).Text(out); k != 0 || again != out {
		t.Fatalf("%q became %q, and then %q", in, out, again)
	}
	if jsontext.Value(in).IsValid() && !jsontext.Value(out).IsValid() {
		t.Fatalf("%q became %q, which is no JSON", in, out)
	}
}

func TestNeverBreaksJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b, err := json.Marshal(drawValue(t, 3))
		if err != nil {
			t.Fatal(err)
		}
		checkJSON(t, b)
		checkText(t, string(b))
		checkText(t, drawText(t))
	})
}

func FuzzRedact(f *testing.F) {
	for _, p := range pieces {
		f.Add(p)
	}
	f.Add(`{"password":"hunter2","arguments":"{\"token\":\"abc123def\"}"}`)
	f.Fuzz(func(t *testing.T, s string) {
		checkText(t, s)
		if jsontext.Value(s).IsValid() {
			checkJSON(t, []byte(s))
		} else {
			Redactor{}.JSON([]byte(s)) // anything but a crash
		}
	})
}

func BenchmarkText(b *testing.B) {
	s := strings.Repeat("the quick brown fox jumps over the lazy dog; token count 5, see https://example.com/x\n", 12000)
	b.SetBytes(int64(len(s)))
	for b.Loop() {
		Redactor{}.Text(s)
	}
}
