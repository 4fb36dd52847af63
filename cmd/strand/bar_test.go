package main

import "testing"

func TestBar(t *testing.T) {
	for _, tt := range []struct {
		n, most int64
		width   int
		want    string
	}{
		{1, 1, 4, "  ████"}, {1, 2, 4, "  ██"}, {1, 1000, 4, "  ▏"}, {3, 8, 1, "  ▍"}, {0, 9, 4, ""}, {1, 0, 4, ""}, {1, 1, 0, ""}, {1, 1, -7, ""},
		{1 << 62, 1 << 62, 2, "  ██"},
	} {
		if got := barOf(tt.n, tt.most, tt.width); got != tt.want {
			t.Errorf("%d of %d in %d cells: %q, want %q", tt.n, tt.most, tt.width, got, tt.want)
		}
	}
}
