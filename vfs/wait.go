package vfs

import (
	"context"
	"time"
)

// Wait returns after d, or with context.Cause when ctx ends first. It is for the moment that a lock is held by
// somebody who only asks; nothing waits longer than a tenth of a second with it.
func Wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
