package testbed

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"time"

	"tenon.sh/tenon/internal/kernel/task"
	"tenon.sh/tenon/internal/lab/archive"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// A Setting holds the fields that the configurations of all experiments have in
// common: the machine, the seed, how long it runs, and the folder of the results. The zero value
// of a field selects its default, which the field's comment names.
type Setting struct {
	Seed       uint64 // seed of the order of modes and of all random values
	Agent      string // path of the tenond for Tenon's modes (default: none, and the lab's own loop runs)
	CPUs       unit.CPUSet
	ClientCPUs unit.CPUSet

	Blocks  int           // how often each cell runs (default: that of the experiment)
	MaxTime time.Duration // of the whole experiment (default: that of the experiment)
	// StealPercent is the largest steal time of a valid run, in percent of the time
	// of the tested CPUs. The default is 1.
	StealPercent float64

	Out string // directory of the results (default: ./tenon-lab-TIME)
	// Resume says that Out has an experiment that was stopped, and goes on.
	Resume bool
	// Claimed is called when Out has become the directory of this experiment,
	// after the set-up and before anything is measured. It may be nil.
	Claimed  func() error
	Notices  io.Writer
	Terminal bool     // Notices is a terminal, so the status line is updated in place
	Command  []string // command line of the experiment, for the record
	Version  string   // version of Tenon, for the record
	// Self is the beginning of the argv that makes this program call Child
	// (default: tenon lab child).
	Self []string

	Root       node.CgroupPath // root cgroup of the experiment (default: the constant Root)
	JournalDir string          // see host.Options

	// NoClient means that the experiment sends no load, so that all CPUs are
	// tested.
	NoClient bool

	// Once means that void runs are not repeated.
	Once bool
}

// OrDefaults sets the defaults, and calls fault for each fault.
func (s Setting) OrDefaults(fault func(format string, args ...any)) Setting {
	if s.Out == "" {
		s.Out = "tenon-lab-" + time.Now().Format("20060102-150405")
	}
	if err := archive.CheckFree(s.Out); err != nil && !s.Resume {
		fault("--out %s: %w", s.Out, err)
	}
	if allowed, err := task.Affinity(0); err != nil {
		fault("%w", err)
	} else if err := checkChosen(allowed, s.CPUs, s.ClientCPUs); err != nil {
		fault("%w", err)
	}
	if s.Blocks < 0 {
		fault("--blocks %d: want 1 or more", s.Blocks)
	}
	if s.MaxTime < 0 {
		fault("--max-time %v: want more than 0", s.MaxTime)
	}
	s.StealPercent = cmp.Or(s.StealPercent, 1)
	CheckVoidPercent("--max-steal", s.StealPercent, fault)
	if s.Notices == nil {
		s.Notices = io.Discard
	}
	s.Root = cmp.Or(s.Root, Root)
	if s.Agent != "" {
		if _, err := exec.LookPath(s.Agent); err != nil {
			fault("--agent: %w", err)
		}
	}
	return s
}

// FlagFaults are faults of values that the user chose by flags. An experiment
// finds them before it touches the machine.
type FlagFaults struct{ error }

func (f FlagFaults) Unwrap() error { return f.error }

// RefuseFlags returns the faults as one error; nil if there are none.
func RefuseFlags(faults ...error) error {
	if err := errors.Join(faults...); err != nil {
		return FlagFaults{err}
	}
	return nil
}

// CheckVoidPercent calls fault unless percent is valid as a bound above which a
// run is void. flag is the name of the flag that sets it.
func CheckVoidPercent(flag string, percent float64, fault func(format string, args ...any)) {
	if !(percent > 0 && percent <= 100) {
		fault("%s %v: want "+VoidPercents, flag, percent)
	}
}

// VoidPercents is the range that CheckVoidPercent accepts.
const VoidPercents = "more than 0 and at most 100 percent"

// Claim makes the directory of the results. If the directory has results
// already, or if Claimed fails, it returns an error. The directory of an experiment
// that goes on is that of the experiment.
func (s Setting) Claim() error {
	if s.Resume {
		return nil
	}
	if err := archive.Claim(s.Out); err != nil {
		return fmt.Errorf("--out %s: %w", s.Out, err)
	}
	if s.Claimed != nil {
		return s.Claimed()
	}
	return nil
}
