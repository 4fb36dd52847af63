package message

import (
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"
)

// Members and block kinds of a later version survive a decode and an encode (rule 12).
func TestUnknownIsKept(t *testing.T) {
	const in = `{"id":"m1","role":"user","content":[{"type":"hologram","depth":3,"x":{"a":1}},{"type":"text","text":"hi","lang":"en"}],"source":{"kind":"plugin","plugin":"p","form":"snapshot"},"pinned":true}`
	m, err := Decode([]byte(in))
	if err != nil {
		t.Fatal(err)
	}
	out, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(in, string(out)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestCloneSharesNothing(t *testing.T) {
	m := Result("r", "c", false, TextBlock("a"))
	c := m.Clone()
	c.Content[0].Content[0].Text = "b"
	if m.Content[0].Content[0].Text != "a" {
		t.Error("clone shares its blocks with the original")
	}
}

func TestUsageAdd(t *testing.T) {
	five := int64(5)
	got := Usage{InputTokens: 1, OutputTokens: 2}.Add(Usage{InputTokens: 3, OutputTokens: 4, CacheReadTokens: &five})
	if got.InputTokens != 4 || got.OutputTokens != 6 || got.CacheReadTokens == nil || *got.CacheReadTokens != 5 {
		t.Errorf("got %+v", got)
	}
	if got.CacheWriteTokens != nil {
		t.Error("unknown became known")
	}
}
