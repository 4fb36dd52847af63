package keeper

// Sizes counts what a keeper holds.
func (k *Keeper) Sizes() (handles, claims, locks int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.handles), len(k.claims), len(k.locks)
}
