package vfs

import (
	"context"
	"time"
)

// Wait returns after d, or with context.Cause when ctx ends first. It is for the moment that a lock is held by
// somebody who only asks, and between two looks at a log that is followed.
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
