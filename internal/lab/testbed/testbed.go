// Package testbed prepares the machine for an experiment, and restores it
// afterwards. It divides the CPUs, creates cgroups, records them in a journal,
// and starts processes in them. It runs Tenon, either as a loop of the lab
// itself or as a tenond.
package testbed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"tenon.sh/tenon/internal/decide/policy"
	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/kernel/proc"
	"tenon.sh/tenon/internal/kernel/task"
	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/machine/host"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// A Site is the machine, prepared for an experiment. Close restores the
// machine.
type Site struct {
	Given    Setting
	Status   *Status
	Host     *host.Host
	Tree     *cgroup.Tree
	FS       proc.FS
	Topology node.Topology
	// isolation is the state of the isolation mechanisms when the experiment
	// begins.
	isolation node.Isolation
	Place     Placement

	Undo []func() error // functions that Close calls in reverse order
}

// Enter removes what killed labs have left. It checks that no other lab runs,
// and divides the CPUs. It starts no process.
func Enter(ctx context.Context, c Setting) (_ *Site, err error) {
	s := &Site{Given: c, Status: &Status{W: c.Notices, terminal: c.Terminal}, FS: proc.Default()}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	if os.Geteuid() != 0 {
		return nil, errors.New("the experiment makes cgroups, which needs root: run it with sudo")
	}
	if len(s.Given.Self) == 0 {
		if s.Given.Self, err = selfArgv(); err != nil {
			return nil, err
		}
	}
	if s.Tree, err = cgroup.Detect(s.FS.Proc); err != nil {
		return nil, err
	}
	if s.Host, err = host.Open(host.Options{Tree: s.Tree, JournalDir: c.JournalDir, Disposable: true, Try: true}); err != nil {
		return nil, err
	}
	s.Undo = append(s.Undo, s.Host.Close)
	s.Host.Show(policy.Files(policy.Config{CPUQOS: Pinned("")}, nil))
	if err := s.takeOver(ctx); err != nil {
		return nil, err
	}
	snapshot, err := s.Host.Snapshot(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the node: %w", err)
	}
	s.Topology, s.isolation = snapshot.Topology, snapshot.Isolation
	allowed, err := task.Affinity(0)
	if err != nil {
		return nil, err
	}
	s.Place, err = Place(s.Topology, allowed, c.CPUs, c.ClientCPUs, c.NoClient)
	s.Place = s.Place.reserveCPU()
	return s, err
}

// Beside returns the site of a process that changes cgroups of others beside a tenond:
// it makes no cgroups and divides no CPUs. It undoes what a killed process of its kind
// changed. self is the beginning of the argv that starts the roles of lab.Child.
func Beside(ctx context.Context, journalDir string, self []string) (_ *Site, err error) {
	s := &Site{Given: Setting{Self: self, JournalDir: journalDir}, Status: &Status{W: io.Discard}, FS: proc.Default()}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	if s.Tree, err = cgroup.Detect(s.FS.Proc); err != nil {
		return nil, err
	}
	if s.Host, err = host.Open(host.Options{Tree: s.Tree, JournalDir: journalDir, Disposable: true}); err != nil {
		return nil, err
	}
	s.Undo = append(s.Undo, s.Host.Close)
	if _, err := s.Host.RestoreDeadLabs(ctx); err != nil {
		return nil, fmt.Errorf("clear up after an earlier experiment: %w", err)
	}
	s.Undo = append(s.Undo, func() error {
		_, err := s.Host.RestoreOwn(context.Background())
		return err
	})
	return s, nil
}

// takeOver removes what killed labs have left, and checks that no other lab
// runs.
func (s *Site) takeOver(ctx context.Context) error {
	if _, err := s.Host.RestoreDeadLabs(ctx); err != nil {
		return fmt.Errorf("clear up after an earlier experiment: %w", err)
	}
	root := s.Given.Root
	if s.Tree.Exists(string(root)) {
		return fmt.Errorf("cgroup %s exists: another experiment is at work here; if not, run tenon restore", root)
	}
	sweep(os.TempDir())
	sweep(StateHome())
	s.Undo = append(s.Undo, func() error {
		err := Clear(root, s.Host, s.Tree)
		_, restoreErr := s.Host.RestoreOwn(context.Background())
		return errors.Join(err, restoreErr)
	})
	return nil
}

// Header returns the header of an experiment on this site, without its machine.
func (s *Site) Header(kind string, modes []report.Mode, blocks int) report.Header {
	return report.Header{
		Schema: report.Schema, Kind: kind, Started: time.Now(), Command: s.Given.Command, Version: s.Given.Version,
		Modes: modes, Blocks: blocks, Seed: s.Given.Seed, TestedCPUs: s.Place.Tested, ClientCPUs: s.Place.Client,
	}
}

// Groups returns what creates the cgroups of children. If the lab only sends
// load, this is NoGroups.
func (s *Site) Groups() Groups {
	if s.Host == nil {
		return NoGroups{}
	}
	return s.Host
}

// NoGroups creates no cgroups, so processes stay in the cgroup of the lab.
type NoGroups struct{}

func (NoGroups) Attach(node.CgroupPath, int) error { return errors.New("this site makes no cgroups") }
func (NoGroups) Spawned(int) error                 { return nil }
func (NoGroups) Reaped(int) error                  { return nil }

// Child returns the argv that runs this program in one of the roles of
// lab.Child.
func (s *Site) Child(args ...string) []string {
	return append(append([]string{}, s.Given.Self...), args...)
}

// StepAside moves the threads of the lab itself to the lab's CPUs. New threads
// inherit this affinity.
func (s *Site) StepAside() error {
	if s.Given.NoClient {
		return nil // there are no client CPUs
	}
	before, err := task.Affinity(0)
	if err != nil {
		return err
	}
	s.Undo = append(s.Undo, func() error { return s.moveSelf(before) })
	return s.moveSelf(s.Place.Lab)
}

func (s *Site) moveSelf(cpus unit.CPUSet) error {
	threads, err := s.FS.Threads(os.Getpid())
	if err != nil {
		return err
	}
	for _, tid := range threads {
		if err := task.SetAffinity(tid, cpus); err != nil {
			return fmt.Errorf("move the lab to CPUs %v: %w", cpus, err)
		}
	}
	return nil
}

// Close undoes the changes of the machine. It may be called more than once.
func (s *Site) Close() error {
	s.Status.Clear()
	var errs []error
	for len(s.Undo) > 0 {
		last := len(s.Undo) - 1
		errs = append(errs, s.Undo[last]())
		s.Undo = s.Undo[:last]
	}
	return errors.Join(errs...)
}

// InterruptError returns nil if err is nil. If ctx has ended, it returns the
// error of ctx instead of err, unless err is about flags.
func InterruptError(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil && !errors.As(err, new(FlagFaults)) {
		return ctx.Err()
	}
	return err
}

// Away returns a site that has only a client. It is for tests of another
// machine.
func Away(c Setting) (_ *Site, err error) {
	s := &Site{Given: c, Status: &Status{W: c.Notices, terminal: c.Terminal}, FS: proc.Default()}
	if len(s.Given.Self) == 0 {
		if s.Given.Self, err = selfArgv(); err != nil {
			return nil, err
		}
	}
	allowed, err := task.Affinity(0)
	if err != nil {
		return nil, err
	}
	if missing := c.ClientCPUs.Minus(allowed); !missing.Empty() {
		return nil, fmt.Errorf("--client-cpus %v: CPU %v is not online or not allowed here; usable are %v", c.ClientCPUs, missing, allowed)
	}
	if s.Place.Client = c.ClientCPUs; c.ClientCPUs.Empty() {
		s.Place.Client = allowed
	}
	s.Place = s.Place.reserveCPU()
	return s, s.StepAside()
}
