package site

import (
	"fmt"
	"io"
	"os/exec"
	"time"

	"tenon.sh/tenon/internal/lab/archive"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// A Setting is the part of a configuration that all experiments share: the
// machine, the seed and the folder of the results. The zero value of a field
// stands for the default named beside it.
type Setting struct {
	Seed       uint64 // of the order of modes and of all that is drawn
	Agent      string // the tenond of Tenon's modes; empty: the lab's own loop
	CPUs       unit.CPUSet
	ClientCPUs unit.CPUSet

	Out      string // directory of the results; ./tenon-lab-TIME
	Notices  io.Writer
	Terminal bool     // Notices is a terminal: one line that is updated
	Command  []string // for the record
	Version  string   // Tenon's, for the record
	// Self is the argv of this program that leads to Child: tenon lab child.
	Self []string

	Root       node.CgroupPath // Root
	JournalDir string          // as host.Options

	// NoClient says that the experiment sends no load: all CPUs are tested.
	NoClient bool

	// Once leaves void runs as they are: they are not repeated.
	Once bool
}

// OrDefaults fills in the defaults, and passes each fault to fault.
func (s Setting) OrDefaults(fault func(format string, args ...any)) Setting {
	if s.Out == "" {
		s.Out = "tenon-lab-" + time.Now().Format("20060102-150405")
	}
	if s.Notices == nil {
		s.Notices = io.Discard
	}
	if s.Root == "" {
		s.Root = Root
	}
	if s.Agent != "" {
		if _, err := exec.LookPath(s.Agent); err != nil {
			fault("--agent: %w", err)
		}
	}
	return s
}

// Claim makes the directory of the results, which must not have any.
func (s Setting) Claim() error {
	if err := archive.Claim(s.Out); err != nil {
		return fmt.Errorf("--out %s: %w", s.Out, err)
	}
	return nil
}
