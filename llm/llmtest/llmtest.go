// Package llmtest checks that a driver keeps the contract of llm.Provider.
package llmtest

import (
	"context"
	"errors"
	"testing"
	"unicode/utf8"

	"github.com/strandline-dev/strandline/llm"
)

// Conform runs req, which has to succeed with more than one chunk each time it is sent, against p.
func Conform(t *testing.T, p llm.Provider, req llm.Request) {
	t.Helper()
	t.Run("whole", func(t *testing.T) {
		var a llm.Assembler
		finished := false
		for c, err := range p.Stream(t.Context(), req) {
			if err != nil {
				t.Fatalf("failed: %v", err)
			}
			if finished {
				t.Fatalf("a %s chunk came after the finish", c.Type)
			}
			for _, s := range []string{c.Text, c.Arguments, c.ID, c.Name, c.ResponseID} {
				if !utf8.ValidString(s) {
					t.Errorf("%s chunk: %q is not valid UTF-8", c.Type, s)
				}
			}
			if err := a.Add(c); err != nil {
				t.Errorf("chunk does not fit: %v", err)
			}
			finished = c.Type == llm.ChunkFinish
		}
		if !finished {
			t.Fatal("the stream ended without a finish")
		}
		if _, err := a.Message(); err != nil {
			t.Error(err)
		}
	})
	t.Run("left early", func(t *testing.T) {
		for _, err := range p.Stream(t.Context(), req) {
			if err != nil {
				t.Fatal(err)
			}
			break
		}
	})
	t.Run("cancelled before", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if code := failure(t, p.Stream(ctx, req), nil); code != llm.CodeAborted {
			t.Errorf("the failure is %s", code)
		}
	})
	t.Run("cancelled while it streams", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		// What was on its way may still come, the finish included.
		if code := failure(t, p.Stream(ctx, req), cancel); code != llm.CodeAborted && code != "" {
			t.Errorf("the failure is %s", code)
		}
	})
}

// failure ranges over a stream and returns the code that it ended with, "" for none. It calls first
// after the first chunk.
func failure(t *testing.T, stream func(func(llm.Chunk, error) bool), first func()) llm.Code {
	t.Helper()
	var code llm.Code
	for c, err := range stream {
		if code != "" {
			t.Error("the stream went on after its failure")
		}
		if err != nil {
			var e *llm.Error
			if !errors.As(err, &e) {
				t.Fatalf("%v is no *llm.Error", err)
			}
			if c.Type != "" {
				t.Errorf("the failure comes with a %s chunk", c.Type)
			}
			code = e.Code
		}
		if first != nil {
			first()
			first = nil
		}
	}
	return code
}
