package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"tenon.sh/tenon/internal/agent/commands"
	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/decide/tick"
	"tenon.sh/tenon/internal/kernel/proc"
	"tenon.sh/tenon/internal/machine/statedir"
	"tenon.sh/tenon/internal/model/node"
)

// A savedMechanisms is the content of statedir.MechanismsFile: the mechanism that
// an operator pinned, and the mechanism failures. The next daemon reads it, even
// after a crash of this one. It is valid only for the boot with the id Boot.
type savedMechanisms struct {
	Version  int            `json:"version"` // of the form
	Boot     string         `json:"boot_id"`
	Asked    node.Request   `json:"request,omitzero"`
	Failures []node.Failure `json:"failures,omitempty"`
}

// mechanisms holds the isolation mechanism that an operator pinned through the
// socket, and the failures of all mechanisms.
type mechanisms struct {
	dir  string
	boot string
	send func(tick.Event)

	mu       sync.Mutex
	now      node.Request
	untimed  bool           // now.At is not yet the time of a tick
	earlier  []node.Failure // failures before this daemon; nil after the first tick
	failures []node.Failure // failures that the file holds
	unsaved  string         // the last error of keep; "": the file holds all failures
	pins     commands.Queue // callers of Pin
}

// openMechanisms loads the operator's choice and the failures that an earlier
// daemon of this boot saved.
func openMechanisms(dir string, from proc.FS, send func(tick.Event)) (*mechanisms, error) {
	boot, err := from.BootID()
	if err != nil {
		return nil, err
	}
	r := &mechanisms{dir: dir, boot: boot, send: send}
	text, err := statedir.ReadFile(r.path())
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	var last savedMechanisms
	if err == nil {
		err = json.Unmarshal(text, &last)
	}
	if err == nil && last.Version != statedir.Version {
		err = fmt.Errorf("its form has version %d, want %d", last.Version, statedir.Version)
	}
	if err != nil {
		return r, fmt.Errorf("read the choice and the failures of isolation mechanisms from %s: %w", r.path(), err)
	}
	if last.Boot == boot {
		r.now, r.failures, r.earlier = last.Asked, last.Failures, last.Failures
	}
	return r, nil
}

func (r *mechanisms) path() string { return filepath.Join(r.dir, statedir.MechanismsFile) }

// Pin makes Tenon use an isolation mechanism. An empty one returns the choice to the
// configuration. Pin saves the choice, and waits until a tick has applied it.
func (r *mechanisms) Pin(ctx context.Context, mechanism node.Mechanism) error {
	done, err := r.set(mechanism)
	if err != nil {
		return err
	}
	text := "the choice is the configuration's again"
	if mechanism != "" {
		text = fmt.Sprintf("%s is pinned by hand", mechanism)
	}
	r.send(tick.Event{At: time.Now(), Kind: tick.EventPin, Text: text})
	return commands.Wait(ctx, done, text)
}

func (r *mechanisms) set(mechanism node.Mechanism) (done <-chan error, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	next := node.Request{Mechanism: mechanism, At: time.Now().Round(0)}
	if mechanism == "" {
		next.At = r.now.At // failures that the last choice voided stay void
	}
	if err := r.save(next, r.failures); err != nil {
		return nil, fmt.Errorf("save the choice of an isolation mechanism: %w", err)
	}
	r.now, r.untimed = next, r.untimed || mechanism != ""
	return r.pins.Add(), nil
}

func (r *mechanisms) save(asked node.Request, failures []node.Failure) error {
	return commands.Save(r.path(), savedMechanisms{Version: statedir.Version, Boot: r.boot, Asked: asked, Failures: failures})
}

// begin returns the operator's choice, and the failures before this daemon.
// Each tick calls it at its start. at is the time of the snapshot, or zero if
// the node could not be read.
//
// A choice voids all earlier failures. Failures have the times of ticks. So
// begin gives a new choice the time of the first tick that applies it: with a
// later time, it would also void failures that happen after the choice.
func (r *mechanisms) begin(at time.Time) (asked node.Request, earlier []node.Failure) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pins.Begin()
	if at.IsZero() {
		return r.now, nil
	}
	if r.untimed || r.now.At.After(at) {
		timed := r.now
		timed.At = at
		if r.save(timed, r.failures) == nil { // after an error, the next tick tries to save it again
			r.untimed = false
		}
		r.now = timed
	}
	later := func(f node.Failure) bool { return f.At.After(at) } // such a time comes from a clock that was ahead
	return r.now, slices.DeleteFunc(slices.Clone(r.earlier), later)
}

// end wakes the callers of Pin if the tick applied their choice (followed). If
// the tick could not read the node, the callers wait for the next tick.
func (r *mechanisms) end(followed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pins.End(followed, nil); followed {
		r.earlier = nil // the state of the policies holds them from now on
	}
}

// keep saves the failures of the last hour if they have changed. If that fails,
// the next tick tries it again. keep returns an error that lasts only once, so
// that the log has one line.
func (r *mechanisms) keep(failures []node.Failure) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if slices.EqualFunc(failures, r.failures, func(a, b node.Failure) bool { return a.Mechanism == b.Mechanism && a.At.Equal(b.At) }) {
		r.unsaved = ""
		return nil
	}
	err := r.save(r.now, failures)
	if err == nil {
		r.failures, r.unsaved = failures, ""
		return nil
	}
	if err.Error() == r.unsaved {
		return nil
	}
	r.unsaved = err.Error()
	return err
}

// handsOver reports whether a tick selected an isolation mechanism that cannot
// start before another mechanism has ended.
func handsOver(t tick.Tick) bool {
	waits := func(w plan.Want) bool { return w.Owner == plan.OwnerMechanism && w.Intent == plan.Abstain }
	return t.Selection.Since.Equal(t.Snapshot.At) && slices.ContainsFunc(t.Wants, waits)
}
