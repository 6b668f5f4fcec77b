package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/decide/tick"
	"tenon.sh/tenon/internal/kernel/proc"
	"tenon.sh/tenon/internal/model/node"
)

// ladderFile is where an operator's choice and the falls of rungs wait for the
// next daemon, however this one ends.
const ladderFile = "ladder.json"

// A fate is what an operator has asked for since a boot, and how the rungs fared.
type fate struct {
	Boot  string      `json:"boot_id"`
	Asked node.Asked  `json:"asked,omitzero"`
	Falls []node.Fall `json:"falls,omitempty"`
}

// rungs is which rung an operator has chosen, on the socket, for the loop to
// follow; and what became of all of them.
type rungs struct {
	dir  string
	boot string
	send func(tick.Event)

	mu      sync.Mutex
	now     node.Asked
	untimed bool        // no turn has said yet when now was asked for
	earlier []node.Fall // under daemons before this one; nil: a turn has seen them
	falls   []node.Fall // as they were kept last
	// waiting are those whose choice no turn has followed yet, and turning those
	// whose choice this turn follows.
	waiting, turning []chan struct{}
}

// openRungs takes what was chosen under an earlier daemon since boot.
func openRungs(dir string, from proc.FS, send func(tick.Event)) (*rungs, error) {
	boot, err := from.BootID()
	if err != nil {
		return nil, err
	}
	r := &rungs{dir: dir, boot: boot, send: send}
	text, err := os.ReadFile(r.path())
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	var last fate
	if err == nil {
		err = json.Unmarshal(text, &last)
	}
	if err != nil {
		return r, fmt.Errorf("read what became of the rungs from %s: %w", r.path(), err)
	}
	if last.Boot == boot {
		r.now, r.falls, r.earlier = last.Asked, last.Falls, last.Falls
	}
	return r, nil
}

func (r *rungs) path() string { return filepath.Join(r.dir, ladderFile) }

// Pin pins a rung, or with none leaves the choice to the configuration. It
// returns when a turn has followed it. What is pinned is kept before anything
// follows it.
func (r *rungs) Pin(ctx context.Context, rung node.Rung) error {
	followed := make(chan struct{})
	if err := r.set(rung, followed); err != nil {
		return err
	}
	text := "the choice is the configuration's again"
	if rung != "" {
		text = fmt.Sprintf("%s is pinned by hand", rung)
	}
	r.send(tick.Event{At: time.Now(), Kind: tick.EventPin, Text: text})
	select {
	case <-followed:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%s, but no turn of tenond has followed it yet: %w", text, ctx.Err())
	}
}

func (r *rungs) set(rung node.Rung, followed chan struct{}) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	next := node.Asked{Rung: rung, At: time.Now().Round(0)}
	if rung == "" {
		next.At = r.now.At // what was forgiven stays so
	}
	if err := r.save(next); err != nil {
		return fmt.Errorf("keep what was asked for: %w", err)
	}
	r.now, r.untimed = next, r.untimed || rung != ""
	r.waiting = append(r.waiting, followed)
	return nil
}

func (r *rungs) save(asked node.Asked) error {
	text, err := json.Marshal(fate{Boot: r.boot, Asked: asked, Falls: r.falls})
	if err != nil {
		return err
	}
	if err := os.WriteFile(r.path()+".next", text, 0o600); err != nil {
		return err
	}
	return os.Rename(r.path()+".next", r.path())
}

// begin says what was asked for, and which falls under earlier daemons count,
// when a turn begins that has read the node at a time; zero: it could not.
//
// Falls have the time of the clock of the turns. What is asked for gets it by
// the first turn that follows it: the node's clock may have been set since this
// daemon began, and a choice with a later time would forgive all falls up to it.
func (r *rungs) begin(at time.Time) (asked node.Asked, earlier []node.Fall) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.turning = append(r.turning, r.waiting...)
	r.waiting = nil
	if at.IsZero() {
		return r.now, nil
	}
	if r.untimed || r.now.At.After(at) {
		timed := r.now
		timed.At = at
		if r.save(timed) == nil { // if not, the next turn tries again
			r.untimed = false
		}
		r.now = timed
	}
	later := func(f node.Fall) bool { return f.At.After(at) } // of a clock that was ahead
	return r.now, slices.DeleteFunc(slices.Clone(r.earlier), later)
}

// end lets those know whose choice the turn has followed. After a turn that
// could not read the node they go on waiting.
func (r *rungs) end(followed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !followed {
		r.waiting, r.turning = append(r.turning, r.waiting...), nil
		return
	}
	for _, done := range r.turning {
		close(done)
	}
	r.turning, r.earlier = nil, nil // the policies remember them from now on
}

// keep keeps the falls of the last hour.
func (r *rungs) keep(falls []node.Fall) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if slices.EqualFunc(falls, r.falls, func(a, b node.Fall) bool { return a.Rung == b.Rung && a.At.Equal(b.At) }) {
		return nil
	}
	r.falls = falls
	return r.save(r.now)
}

// handsOver reports that a turn has chosen a rung, which waits until the turn
// has given up another.
func handsOver(t tick.Tick) bool {
	waits := func(w plan.Want) bool { return w.Owner == plan.OwnerLadder && w.Intent == plan.Abstain }
	return t.Ladder.Since.Equal(t.Snapshot.At) && slices.ContainsFunc(t.Wants, waits)
}
