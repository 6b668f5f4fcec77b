// Package health collects the faults of the agent itself, not of the work on
// the node. Each part of the agent reports its own trouble. Status, metrics and
// health probes show all trouble.
package health

import (
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
)

// A Kind is a kind of trouble.
type Kind string

// The values of Kind.
const (
	// Config means that the configuration cannot be read or has faults. The
	// last valid configuration stays in use.
	Config Kind = "config"
	// State means that the journal, the lease or a lock is damaged and cannot
	// be written.
	State Kind = "state"
	// Lost means that the journal has lost entries, perhaps for good. A restore
	// reports the loss and ends this trouble.
	Lost Kind = "lost"
	// Bounds means that the lease is renewed, but with old safe bounds, because
	// new ones cannot be written, or without a bound of a cgroup that cannot be
	// looked up. A restart would not help.
	Bounds Kind = "bounds"
	// Contested means that another program keeps writing the knobs that Tenon
	// writes.
	Contested Kind = "contested"
	// Refused means that some knobs refuse each write, for example because a file
	// system was made read-only.
	Refused Kind = "refused"
	// Exposed means that other users can write to the state directory, and so to
	// the journal.
	Exposed Kind = "exposed"
	// Unread means that a kernel file, or a part of it, cannot be read. What it
	// says counts as unknown.
	Unread Kind = "unread"
)

// Kinds lists all kinds.
var Kinds = []Kind{Config, State, Lost, Bounds, Contested, Refused, Exposed, Unread}

// A Trouble is one thing that is wrong with the agent.
type Trouble struct {
	Kind Kind   `json:"kind"`
	Text string `json:"text"`
}

// Health holds everything that is wrong with an agent at present. The zero
// Health is ready to use. It is safe for concurrent use.
type Health struct {
	mu  sync.Mutex
	all map[source]string
	log *slog.Logger
}

// A source is a part of the agent with a kind of trouble. Several parts may
// report the same kind.
type source struct {
	kind Kind
	part string
}

// New returns the Health of an agent without trouble. The Health logs when
// trouble begins, changes or ends, except for Refused.
func New(log *slog.Logger) *Health { return &Health{log: log} }

// Set sets the trouble of a part. An empty text means no trouble. Set reports
// whether the text has changed.
func (h *Health) Set(kind Kind, part, text string) (changed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	from := source{kind, part}
	if h.all[from] == text {
		return false
	}
	if h.all == nil {
		h.all = map[source]string{}
	}
	if text == "" {
		delete(h.all, from)
	} else {
		h.all[from] = text
	}
	switch {
	case h.log == nil || kind == Refused: // the log names each knob that fails
	case text == "":
		h.log.Info("trouble has ended", "kind", kind, "part", part)
	default:
		h.log.Error(text, "kind", kind, "part", part)
	}
	return true
}

// All returns the present trouble, sorted. A nil Health has no trouble.
func (h *Health) All() []Trouble {
	if h == nil {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	var all []Trouble
	for from, text := range h.all {
		all = append(all, Trouble{from.kind, text})
	}
	slices.SortFunc(all, func(a, b Trouble) int {
		return strings.Compare(string(a.Kind)+a.Text, string(b.Kind)+b.Text)
	})
	return all
}

// Err returns all trouble of one kind as an error, or nil.
func (h *Health) Err(kind Kind) error {
	var errs []error
	for _, text := range h.Texts(kind) {
		errs = append(errs, errors.New(text))
	}
	return errors.Join(errs...)
}

// Texts returns the texts of all trouble of some kinds, sorted by kind and text.
func (h *Health) Texts(kinds ...Kind) []string {
	var all []string
	for _, t := range h.All() {
		if slices.Contains(kinds, t.Kind) {
			all = append(all, t.Text)
		}
	}
	return all
}
