package catalog

import "testing"

// Of what is well known the table knows window and price; of what nobody knows it says so.
func TestModel(t *testing.T) {
	c := New()
	for _, m := range [][2]string{{"openai", "gpt-5"}, {"deepseek", "deepseek-v4-flash"}, {"openrouter", "anthropic/claude-sonnet-4.5"}} {
		i, ok := c.Model(m[0], m[1])
		if !ok || i.ContextWindow < 32_000 || i.Price == nil || i.Price.Input <= 0 || i.Price.Output <= i.Price.Input || i.Price.CacheRead >= i.Price.Input || i.Price.CacheWrite < i.Price.Input {
			t.Errorf("%v: %+v %+v", m, i, i.Price)
		}
	}
	if i, ok := c.Model("openai", "no-such-model"); ok {
		t.Errorf("%+v", i)
	}
	if n := len(c.read()); n < 500 {
		t.Errorf("%d models", n)
	}
}
