package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/strandline-dev/strandline/session"
)

// Checkpoint is a fold of the first Pos.Next events of a log, as session.State.MarshalBinary wrote it. It is derived:
// a store may lose it at any moment. It stands for every log that has Pos, so forks find that of their parent, and
// it proves nothing of the events below.
type Checkpoint struct {
	Pos  Pos
	Data []byte
}

// Checkpoints is a store that keeps folds beside its logs.
type Checkpoints interface {
	// PutCheckpoint keeps c for the session id, whose writer in this process has synced c.Pos. It does not sync, and
	// it removes older ones, so that few are kept of however long a log. When it fails nothing else has failed.
	PutCheckpoint(ctx context.Context, id session.ID, c Checkpoint) error
	// ReadTail is Read of what lies behind a checkpoint: an earlier event is read, and verified, when somebody asks for
	// it. So it says nothing about damage below: who meets some gets a *DamagedError then. Without a checkpoint
	// of use it is Read. Open does the same.
	ReadTail(ctx context.Context, id session.ID) (*Snapshot, error)
	// DropCheckpoints removes those that are kept of id.
	DropCheckpoints(ctx context.Context, id session.ID) error
}

// Whole, as the n of Nearest, stands for all of the log.
const Whole session.Seq = math.MaxInt64

// ReadTail is that of r, if it keeps checkpoints, else Read.
func ReadTail(ctx context.Context, r Reader, id session.ID) (*Snapshot, error) {
	if c, ok := r.(Checkpoints); ok {
		return c.ReadTail(ctx, id)
	}
	return r.Read(ctx, id)
}

// FoldTo folds the first n events of a snapshot (all, if it has no more), beginning with the nearest checkpoint at
// or below n that this program can use. It fails only when the log cannot be read.
func FoldTo(snap *Snapshot, reg *session.Registry, n session.Seq) (session.State, error) {
	p := session.Sub(snap.Prefix, n)
	st, ok := snap.begin(reg, p.Len())
	if !ok {
		st = session.NewState(snap.Header, reg)
	}
	if err := st.LoadAll(p); err != nil {
		return session.State{}, fmt.Errorf("store: loading session %s: %w", snap.Header.ID, err)
	}
	return st, nil
}

// begin returns the state of a checkpoint at or below n.
func (s *Snapshot) begin(reg *session.Registry, n session.Seq) (session.State, bool) {
	if s.Nearest == nil {
		return session.State{}, false
	}
	c, ok := s.Nearest(n)
	if !ok {
		return session.State{}, false
	}
	st, err := session.UnmarshalState(s.Header, reg, c.Data)
	return st, err == nil && st.Next() == c.Pos.Next
}

// WrongCheckpoints returns the seqs of the checkpoints of whole, a snapshot that was read whole, which are not what the
// events up to there fold to. If there are any, all that the session may begin with are removed, as far as that can be
// done. What another version made is no fault.
func WrongCheckpoints(ctx context.Context, st Checkpoints, whole *Snapshot, reg *session.Registry) ([]session.Seq, error) {
	tail, err := st.ReadTail(ctx, whole.Header.ID)
	if err != nil {
		return nil, err
	}
	defer tail.Close()
	var all []Checkpoint // the newest first
	for n := whole.Prefix.Len(); n > 0 && tail.Nearest != nil; {
		c, ok := tail.Nearest(n)
		if !ok {
			break
		}
		all = append(all, c)
		n = c.Pos.Next - 1
	}
	var wrong []session.Seq
	fold := session.NewState(whole.Header, reg)
	for _, c := range slices.Backward(all) {
		if err := fold.LoadAll(session.Sub(whole.Prefix, c.Pos.Next)); err != nil {
			return nil, err
		}
		st, err := session.UnmarshalState(whole.Header, reg, c.Data)
		if errors.Is(err, session.ErrOtherFold) {
			continue
		}
		want, werr := fold.MarshalBinary()
		if werr != nil {
			return nil, werr
		}
		var got []byte
		if err == nil {
			got, err = st.MarshalBinary()
		}
		if err != nil || !bytes.Equal(got, want) {
			wrong = append(wrong, c.Pos.Next)
		}
	}
	if len(wrong) > 0 {
		for _, sp := range whole.Header.Spans(whole.Prefix.Len()) {
			_ = st.DropCheckpoints(ctx, sp.ID)
		}
	}
	return wrong, nil
}

// ErrWrongCheckpoint says that a checkpoint is not the fold of the log that it stands for.
var ErrWrongCheckpoint = errors.New("a checkpoint is not the fold of its log")

// CheckFold compares what FoldTo makes of a snapshot with what all of its events fold to. It reads the whole log: it is
// for tests, and for who looks for faults of this program.
func CheckFold(snap *Snapshot, reg *session.Registry) error {
	st, ok := snap.begin(reg, snap.Prefix.Len())
	if !ok {
		return nil
	}
	at := st.Next()
	whole, err := session.Fold(snap.Header, reg, session.Sub(snap.Prefix, at))
	if err != nil {
		return err
	}
	a, err := st.MarshalBinary()
	if err != nil {
		return err
	}
	b, err := whole.MarshalBinary()
	if err == nil && !bytes.Equal(a, b) {
		err = fmt.Errorf("store: session %s at %d: %w", snap.Header.ID, at, ErrWrongCheckpoint)
	}
	return err
}
