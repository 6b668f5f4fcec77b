// Package health says what is wrong with the agent itself, and not with the
// work on the node. Each part of the agent reports its own trouble. Status,
// metrics and health probes show all of it.
package health

import (
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
)

// A Kind names the part of the agent that has trouble.
type Kind string

// The values of Kind.
const (
	// Config means that the configuration cannot be read or has faults. The
	// last valid one stays in use.
	Config Kind = "config"
	// State means that the journal, the lease or a lock is damaged and cannot
	// be written.
	State Kind = "state"
	// Lost means that the journal has lost entries, perhaps for good. A restore
	// reports this and ends the trouble.
	Lost Kind = "lost"
	// Contested means that another program repeatedly writes knobs that Tenon
	// writes, too.
	Contested Kind = "contested"
)

// Kinds lists all kinds.
var Kinds = []Kind{Config, State, Lost, Contested}

// A Trouble is one thing that is wrong.
type Trouble struct {
	Kind Kind   `json:"kind"`
	Text string `json:"text"`
}

// Health is the present trouble of an agent. The zero Health is ready to use. It
// is safe for concurrent use.
type Health struct {
	mu  sync.Mutex
	all map[source]string
	log *slog.Logger
}

// A source is a part of the agent that can have trouble. Several parts may have
// trouble of the same kind.
type source struct {
	kind Kind
	part string
}

// New returns the health of an agent without trouble. log gets a line when
// trouble begins, changes or ends.
func New(log *slog.Logger) *Health { return &Health{log: log} }

// Set sets the trouble of a part. An empty text means that the part has none.
// The result says whether this is a change.
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
	case h.log == nil:
	case text == "":
		h.log.Info("trouble has ended", "kind", kind, "part", part)
	default:
		h.log.Error(text, "kind", kind, "part", part)
	}
	return true
}

// All returns the present trouble, sorted. A nil Health has none.
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

// Err returns the trouble of one kind as an error, or nil.
func (h *Health) Err(kind Kind) error {
	var errs []error
	for _, t := range h.All() {
		if t.Kind == kind {
			errs = append(errs, errors.New(t.Text))
		}
	}
	return errors.Join(errs...)
}
