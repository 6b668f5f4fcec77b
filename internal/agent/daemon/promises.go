package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"time"

	"tenon.sh/tenon/internal/decide/promise"
	"tenon.sh/tenon/internal/decide/tick"
	"tenon.sh/tenon/internal/machine/statedir"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// promises gives package promise the least room of each minute. It saves what
// that has learnt each hour, because it needs days to learn it. The file is on
// tmpfs, so after a restart of the machine only the history has it.
type promises struct {
	file   string
	log    *slog.Logger
	state  promise.State
	minute int64        // the minute that is being measured, since 1970; 0: none
	least  promise.Room // in this minute up to now
	saved  int64        // the hour of the last save
	failed string       // the last error of a save that was logged
}

// openPromises goes on with what the last daemon saved, or, after a restart of the
// machine or if that is damaged, with what the history in a directory says. history may
// be "".
func openPromises(stateDir, history string, now time.Time, log *slog.Logger) *promises {
	p := &promises{file: filepath.Join(stateDir, statedir.PromisesFile), log: log}
	text, err := statedir.ReadFile(p.file)
	if err == nil {
		p.state, err = promise.Restore(text)
	}
	if err == nil {
		return p
	}
	if !errors.Is(err, fs.ErrNotExist) {
		log.Warn("the saved promises of room are lost; the history is read instead, if there is one", "error", err)
	}
	state, damages, err := promisesOf(history, now)
	for _, d := range damages {
		log.Warn("a part of the history is damaged; promises of room do without it", "file", d.File, "bytes", d.Bytes)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		log.Warn("promises of room rest on a part of the history only", "error", err)
	}
	p.state = state
	return p
}

// tick observes the room after a tick, and returns the promises.
func (p *promises) tick(t tick.Tick) []promise.Promise {
	if t.Snapshot.At.IsZero() || !t.Batch.Enabled() {
		return nil
	}
	now := roomNow(t.Batch)
	minute := t.Begun.Unix() / 60
	if minute == p.minute {
		p.least = p.least.Lower(now)
	} else {
		if p.minute != 0 {
			p.state.Observe(p.minute, p.least)
		}
		p.minute, p.least = minute, now
	}
	if hour := minute / 60; hour != p.saved {
		if p.saved != 0 {
			p.save()
		}
		p.saved = hour
	}
	return p.state.Promises(minute, now)
}

// roomNow returns the room for batch work.
func roomNow(b node.Batch) promise.Room {
	return promise.Room{CPU: roomOf(b.CPU), Memory: roomOf(b.Memory)}
}

// roomOf returns the amount that BE work may request, unless an input of it is
// missing.
func roomOf[T unit.MilliCPU | unit.Bytes](a node.Amount[T]) node.Maybe[T] {
	if a.Policy == "" || a.Degraded != "" {
		return node.Maybe[T]{}
	}
	return node.Some(a.Value)
}

// save saves what was learnt. An error is logged once, and is no reason to stop.
func (p *promises) save() {
	text, err := p.state.Save()
	if err == nil {
		err = statedir.WriteFile(p.file, text)
	}
	said := ""
	if err != nil {
		if said = err.Error(); said != p.failed {
			p.log.Warn("promises of room begin anew or with the history if tenond starts again", "error", fmt.Errorf("save promises: %w", err))
		}
	}
	p.failed = said
}
