package lab

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"tenon.sh/tenon/internal/node"
	"tenon.sh/tenon/internal/unit"
)

// A Setting is what every experiment is told alike: where it runs, with which
// seed, and where its results go. The zero value of a field stands for the
// default named beside it.
type Setting struct {
	Seed       uint64 // of the order of modes and of all that is drawn
	Agent      string // the tenond that does the work in Tenon's modes; none: the lab's own loop
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

	// Once leaves void runs as they are: they are not repeated.
	Once bool
}

// orDefaults fills in what was not said, and hands each fault to fault.
func (s Setting) orDefaults(fault func(format string, args ...any)) Setting {
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

// claim makes the directory of the results, which must not have any.
func (s Setting) claim() error {
	if _, err := os.Stat(filepath.Join(s.Out, "experiment.json")); err == nil {
		return fmt.Errorf("--out %s: there is an experiment already, choose another directory", s.Out)
	}
	if err := os.MkdirAll(s.Out, 0o755); err != nil {
		return fmt.Errorf("--out: %w", err)
	}
	return nil
}
