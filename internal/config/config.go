// Package config parses the versioned configuration file of tenond into a struct with defaults.
// It finds all faults at once. Each fault has a line, a field and the accepted values.
package config

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"time"

	"tenon.sh/tenon/internal/config/syntax"
	"tenon.sh/tenon/internal/decide/match"
	"tenon.sh/tenon/internal/decide/policy"
)

// MaxSize is the maximum size of the configuration file, in bytes.
const MaxSize = syntax.MaxSize

// defaultPeriod is the default of Period. It is also the period of Koordinator's CPU suppress.
const defaultPeriod = time.Second

// Config is the configuration of a node.
type Config struct {
	// Period is the time between two ticks when no event wakes the loop.
	Period time.Duration
	// Signals selects what the kernel reports.
	Signals Signals
	History History
	// Observe means that the agent decides and writes nothing to the node.
	Observe bool
	// Rules select the managed cgroups and give them a class. The first rule that
	// matches a cgroup applies. Tenon never changes a cgroup that no rule matches.
	Rules []match.Rule
	// ContainerSockets are the sockets of the container runtimes, in the
	// notation of package container. An empty list means the usual paths.
	ContainerSockets []string
	// Policy is the configuration of the policies.
	Policy policy.Config
	// Notices lists the settings that this version does not support. A notice is
	// not a fault: all other settings are valid.
	Notices []string
}

// A Fault is one mistake in a file. Its JSON keys are stable.
type Fault struct {
	// Line is the line of the mistake, counted from 1. It is 0 if the line is not known.
	Line int `json:"line,omitempty"`
	// Field is the dotted path of the key, such as "rules[1].class". It is
	// empty if the fault concerns the whole file.
	Field string `json:"field,omitempty"`
	// Problem contains the wrong value and the accepted values.
	Problem string `json:"problem"`
}

// String prints `line 7: rules[1].class: "XX": want one of LSE, LSR, LS, BE, SYSTEM`.
func (f Fault) String() string {
	s := f.Problem
	if f.Field != "" {
		s = f.Field + ": " + s
	}
	if f.Line > 0 {
		s = fmt.Sprintf("line %d: %s", f.Line, s)
	}
	return s
}

// Invalid is the error for a file with faults.
type Invalid struct {
	Path   string
	Faults []Fault
}

// Error lists all faults, one on each line.
func (e *Invalid) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "config %s: ", e.Path)
	if len(e.Faults) == 1 {
		b.WriteString("1 fault")
	} else {
		fmt.Fprintf(&b, "%d faults", len(e.Faults))
	}
	for _, f := range e.Faults {
		b.WriteString("\n  " + f.String())
	}
	return b.String()
}

// Load reads the file at path. If the file has faults, the error is an *Invalid
// that contains all of them.
func Load(path string) (Config, error) { return load(path, ReadText) }

// LoadRegular is like Load, but refuses files that are not regular. It is for
// callers that read the file repeatedly.
func LoadRegular(path string) (Config, error) { return load(path, ReadRegular) }

func load(path string, read func(string, int64) ([]byte, error)) (Config, error) {
	data, err := read(path, MaxSize+1)
	if err != nil {
		return Config{}, fmt.Errorf("read config: %w", err)
	}
	c, faults := Parse(data)
	if len(faults) > 0 {
		return Config{}, &Invalid{Path: path, Faults: faults}
	}
	return c, nil
}

// Parse parses the text of a configuration file. If there is a fault, it
// returns the zero Config, because callers must not use a part of a
// configuration. The faults are in the order of their lines.
func Parse(data []byte) (Config, []Fault) {
	f, faults := read(data)
	if len(faults) > 0 {
		return Config{}, faults
	}
	c := Config{
		Period:           f.Period.Or(defaultPeriod),
		Signals:          f.Signals.signals(),
		History:          f.History.history(),
		Observe:          f.Observe.Or(false),
		Policy:           f.Policy(),
		ContainerSockets: f.ContainerSockets,
		Notices:          slices.Concat(noticesOfRules(f.Rules), sliceNotices(f.Slices, f.sliceUses()), f.Notices(), f.Unlikely()),
	}
	c.Policy.NodeCPUs.CPUs = f.cpus()
	c.Policy.Seats.Slices = workerSlices(f.Slices, f.sliceUses())
	c.Policy.Cache.Peak = valueOf(f.MemoryBandwidth)
	f.reserve(&c.Policy.Overcommit)
	for _, r := range f.Rules {
		c.Rules = append(c.Rules, r.rule())
	}
	return c, nil
}

//go:embed default.yaml
var defaultFile []byte

// Default returns the documented default file for a new node.
func Default() []byte { return slices.Clone(defaultFile) }
