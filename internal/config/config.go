// Package config is the versioned configuration file of tenond: text to a
// defaulted struct. All faults are found at once, each with its line, its
// field and the range that the field takes.
package config

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"time"

	"tenon.sh/tenon/internal/config/textfile"
	"tenon.sh/tenon/internal/decide/match"
	"tenon.sh/tenon/internal/decide/policy"
)

// MaxSize is the largest file that is read, in bytes. A node has some dozens
// of rules; a file this long is not a configuration.
const MaxSize = 1 << 20

// defaultPeriod is that of the field's agents, and what the CPU suppress of
// the reference runs at.
const defaultPeriod = time.Second

// Config is the configuration of a node.
type Config struct {
	// Period is the time between two ticks when no event wakes the loop.
	Period time.Duration
	// Signals are the events that wake it.
	Signals Signals
	// Rules say which cgroups are managed, and as what. The first that
	// matches wins; what matches none is never touched.
	Rules []match.Rule
	// ContainerSockets are the sockets of the container runtimes, as package
	// container names them; empty: the usual places.
	ContainerSockets []string
	// Policy is the strategies, as the policies read them.
	Policy policy.Config
	// Notices name what the file asks for and this version does not do. They
	// are no faults: the rest of the file holds.
	Notices []string
}

// A Fault is one thing wrong with a file.
type Fault struct {
	// Line is where it stands, from 1; 0 where no line is to blame.
	Line int
	// Field is its dotted path: "rules[1].class". Empty: the file as a whole.
	Field string
	// Problem names the value and what is accepted in its place.
	Problem string
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

// Invalid is the error of a file that has faults.
type Invalid struct {
	Path   string
	Faults []Fault
}

// Error lists all faults, one a line.
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

// Load reads the file at path. The error of a file that can be read but has
// faults is *Invalid and lists all of them.
func Load(path string) (Config, error) { return load(path, textfile.Read) }

// LoadRegular is Load for a loop that reads the file again and again: it refuses
// all but regular files.
func LoadRegular(path string) (Config, error) { return load(path, textfile.ReadRegular) }

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

// Parse reads the text of a configuration file. With any fault the Config is
// the zero one: half a configuration is worse than the one from before.
// Faults stand in the order of their lines.
func Parse(data []byte) (Config, []Fault) {
	f, faults := read(data)
	if len(faults) > 0 {
		return Config{}, faults
	}
	c := Config{
		Period:           f.Period.Or(defaultPeriod),
		Signals:          f.Signals.signals(),
		Policy:           f.Policy(),
		ContainerSockets: f.ContainerSockets,
		Notices:          slices.Concat(noticesOfRules(f.Rules), f.noticesOfObjectives(), f.Notices()),
	}
	c.Policy.Pool.CPUs = f.cpus()
	c.Policy.Cache.Peak = valueOf(f.MemoryBandwidth)
	f.reserve(&c.Policy.Overcommit)
	for _, r := range f.Rules {
		c.Rules = append(c.Rules, r.rule())
	}
	return c, nil
}

//go:embed default.yaml
var defaultFile []byte

// Default returns the documented file that a new node starts with.
func Default() []byte { return slices.Clone(defaultFile) }
