package record

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"pgregory.net/rapid"
)

// blobMap is a place for blobs.
type blobMap map[string][]byte

func (m blobMap) put(raw []byte) (string, error) {
	name := BlobName(raw)
	m[name] = bytes.Clone(raw)
	return name, nil
}

func (m blobMap) get(name string) ([]byte, error) {
	if b, ok := m[name]; ok {
		return b, nil
	}
	return nil, errors.New("no blob " + name)
}

func TestExternalize(t *testing.T) {
	long := `"` + strings.Repeat("x", 20) + `"` // 22 bytes
	ref := `{"$blob":"` + BlobName([]byte(long)) + `","bytes":22}`
	tests := []struct{ name, in, want string }{
		{"nothing", `{"a":"b"}`, `{"a":"b"}`},
		{"value", `{"a":` + long + `}`, `{"a":` + ref + `}`},
		{"exactly the limit", `{"a":"` + strings.Repeat("x", 19) + `"}`, `{"a":"` + strings.Repeat("x", 19) + `"}`},
		{"in an array, twice", `{"a":[1,` + long + `,"s",` + long + `]}`, `{"a":[1,` + ref + `,"s",` + ref + `]}`},
		{"long name stays", `{` + long + `:1}`, `{` + long + `:1}`},
		{"$blob", `{"$blob":1}`, `{"$$blob":1}`},
		{"$$blob", `{"$$blob":1}`, `{"$$$blob":1}`},
		{"$xblob", `{"$xblob":1,"b":{"$blob":{"$blob":"$blob"}}}`, `{"$$xblob":1,"b":{"$$blob":{"$$blob":"$blob"}}}`},
		{"escaped names", `{"\u0024blob":1,"$\u0062lob":2,"$blo":3,"blob":4}`, `{"$\u0024blob":1,"$$\u0062lob":2,"$blo":3,"blob":4}`},
		{"a string like a name", `{"a":"$blob","b":"\"$blob\":"}`, `{"a":"$blob","b":"\"$blob\":"}`},
		{"an accepted reference", `{"a":` + ref + `}`, `{"a":{"$$blob":{"$blob":"` +
			BlobName([]byte(`"`+BlobName([]byte(long))+`"`)) + `","bytes":73},"bytes":22}}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := blobMap{}
			got, err := Externalize(jsontext.Value(tt.in), 21, m.put)
			if err != nil || string(got) != tt.want {
				t.Fatalf("got  %s %v\nwant %s", got, err, tt.want)
			}
			back, err := Internalize(got, m.get)
			if err != nil || string(back) != tt.in {
				t.Fatalf("back %s %v\nwant %s", back, err, tt.in)
			}
			n := 0
			Blobs(got, func(name string) {
				n++
				if m[name] == nil {
					t.Errorf("Blobs names %s, which was never put", name)
				}
			})
			if want := strings.Count(tt.want, `{"$blob":"sha256-`); n != want {
				t.Errorf("%d blobs, want %d", n, want)
			}
		})
	}
}

func TestBlobErrors(t *testing.T) {
	m := blobMap{}
	good, _ := m.put([]byte(`"abc"`))
	wrong, _ := m.put([]byte(`abcde`))
	tail, _ := m.put([]byte(`abc"`))
	head, _ := m.put([]byte(`"abc`))
	one, _ := m.put([]byte(`"`))
	m[strings.ToUpper(good)] = m[good]
	gone := BlobName([]byte("gone"))
	for name, in := range map[string]string{
		"not found":         `{"a":{"$blob":"` + gone + `","bytes":5}}`,
		"other length":      `{"a":{"$blob":"` + good + `","bytes":6}}`,
		"not a string":      `{"a":{"$blob":"` + wrong + `","bytes":5}}`,
		"no first quote":    `{"a":{"$blob":"` + tail + `","bytes":4}}`,
		"no last quote":     `{"a":{"$blob":"` + head + `","bytes":4}}`,
		"one quote":         `{"a":{"$blob":"` + one + `","bytes":1}}`,
		"no brace":          `"$blob":"` + good + `","bytes":5}`,
		"no bytes":          `{"a":{"$blob":"` + good + `"}}`,
		"more members":      `{"a":{"$blob":"` + good + `","bytes":5,"x":1}}`,
		"not first":         `{"a":{"x":1,"$blob":"` + good + `","bytes":5}}`,
		"short name":        `{"a":{"$blob":"sha256-00","bytes":5}}`,
		"upper case":        `{"a":{"$blob":"` + strings.ToUpper(good) + `","bytes":5}}`,
		"a number":          `{"a":{"$blob":1,"bytes":5}}`,
		"escaped":           `{"a":{"\u0024blob":"` + good + `","bytes":5}}`,
		"escaped extra":     `{"a":{"\u0024$blob":1}}`,
		"the whole of data": `"$blob":`,
	} {
		if got, err := Internalize(jsontext.Value(in), m.get); err == nil {
			t.Errorf("%s: accepted as %s", name, got)
		}
	}
	bad := errors.New("disk full")
	if _, err := Externalize(jsontext.Value(`{"a":"0123456789"}`), 5, func([]byte) (string, error) { return "", bad }); !errors.Is(err, bad) {
		t.Error(err)
	}
}

func TestBlobRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		data := genData().Draw(t, "data")
		m := blobMap{}
		stored, err := Externalize(data, rapid.IntRange(2, 30).Draw(t, "limit"), m.put)
		if err != nil {
			t.Fatal(err)
		}
		if !stored.IsValid() {
			t.Fatalf("not JSON: %s", stored)
		}
		back, err := Internalize(stored, m.get)
		if err != nil || string(back) != string(data) {
			t.Fatalf("accepted %s\nstored   %s\nback     %s %v", data, stored, back, err)
		}
	})
}

// Data without long strings and $ names is not touched and costs nothing.
func TestBlobFastPath(t *testing.T) {
	data := jsontext.Value(`{"a":"` + strings.Repeat("x", 1000) + `"}`)
	if n := testing.AllocsPerRun(100, func() {
		a, _ := Externalize(data, BlobLimit, nil)
		b, _ := Internalize(data, nil)
		if &a[0] != &data[0] || &b[0] != &data[0] {
			t.Error("copied")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
