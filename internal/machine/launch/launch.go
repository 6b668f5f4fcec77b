// Package launch runs one command in its QoS class, in a cgroup of its own. It
// sets the knobs of the cgroup before the first instruction of the command. It
// forwards signals to the command, returns the exit status, and removes the
// cgroup at the end.
package launch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/kernel/proc"
	"tenon.sh/tenon/internal/machine/host"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// Each launched command has a cgroup in one of these two, which are below
// Launcher.Root. BestEffortGroup is the contention root, where BE competes with
// other work.
const (
	SensitiveGroup  = "tenon-ls"
	BestEffortGroup = "tenon-be"
)

// A Command is a command line with its QoS class and limits.
type Command struct {
	Args  []string
	Class node.Class
	// Name is the name of the command's cgroup. If it is empty, Check sets it
	// to the base name of the command with the pid of Tenon.
	Name        string
	CPULimit    node.Maybe[unit.MilliCPU]
	MemoryLimit node.Maybe[unit.Bytes]
}

// Workload returns the workload of c on a node whose Launcher.Root is root.
func (c Command) Workload(root node.CgroupPath) node.Workload {
	top := root.Join(SensitiveGroup)
	if c.Class == node.BE {
		top = root.Join(BestEffortGroup)
	}
	return node.Workload{
		ID: node.WorkloadID(c.Name), Class: c.Class, Cgroup: top.Join(c.Name), ContentionRoot: top,
		CPULimit: c.CPULimit, MemoryLimit: c.MemoryLimit,
	}
}

// Check sets Name if it is empty. It returns the first error that it finds in c.
func (c *Command) Check() error {
	if len(c.Args) == 0 {
		return errors.New("no command: put it after --, as in tenon run --qos BE -- make -j4")
	}
	if c.Name == "" {
		base := strings.Map(plainByte, filepath.Base(c.Args[0]))
		base = strings.ReplaceAll(strings.TrimLeft(base, "."), ".", "-") // memory.py-7 would look like a kernel file
		c.Name = fmt.Sprintf("%s-%d", base, os.Getpid())
	}
	// The kernel has its own files in the directory of a cgroup, such as
	// cpu.max and cgroup.procs. Name must not look like one of them.
	if len(c.Name) > 128 || strings.Map(plainByte, c.Name) != c.Name || strings.ContainsRune(c.Name, '.') && fileLike(c.Name) {
		return fmt.Errorf("name %q: want up to 128 letters, digits and . _ -, not like a kernel file such as cpu.max", c.Name)
	}
	return nil
}

func plainByte(r rune) rune {
	if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._-", r) {
		return r
	}
	return '_'
}

// fileLike reports whether name could be the name of a kernel file in a cgroup.
func fileLike(name string) bool {
	prefix, _, _ := strings.Cut(name, ".")
	switch prefix {
	case "", "cgroup", "cpu", "cpuacct", "cpuset", "memory", "pids", "io", "blkio", "freezer", "hugetlb", "rdma", "misc", "irq", "devices", "notify_on_release", "tasks":
		return true
	}
	return false
}

// A Launcher runs commands on one node.
type Launcher struct {
	Host *host.Host
	Tree *cgroup.Tree
	FS   proc.FS
	// Root is the cgroup below which Tenon creates cgroups: "" for the root of
	// the hierarchy, or a cgroup that is delegated to the user.
	Root node.CgroupPath
	// Tick makes one tick of the agent's loop. The tick sets the knobs of the
	// workloads that Host manages.
	Tick func(context.Context) error
	// StateDir is the directory of the lock that the launchers of a node share.
	StateDir string
	// Program is the beginning of the command line that starts this program
	// again.
	Program []string
	// Note receives messages for the user, one line each.
	Note func(string)
	// Yield makes Run start the command without a cgroup. A best-effort command
	// then gets the lowest priority that a thread can give itself.
	Yield bool
}

// Run runs c, and returns when the command has ended and its cgroup is empty.
// If Yield is set, there is no cgroup: a best-effort command gets SCHED_IDLE,
// nice 19 and the idle I/O class, and any other command runs unchanged. If the
// command could not be started, the error is a *StartError. If Tenon may not
// create cgroups, Run does not start the command, and returns an error for
// which Forbidden is true.
func (l *Launcher) Run(ctx context.Context, c Command) (Result, error) {
	if err := c.Check(); err != nil {
		return Result{}, err
	}
	path, err := find(c.Args[0])
	if err != nil {
		return Result{}, err
	}
	caught, stop := catchSignals()
	defer stop()

	gate, err := startGate(l.Program, gateOrder{Idle: l.Yield && c.Class == node.BE, Path: path, Args: c.Args})
	if err != nil {
		return Result{}, err
	}
	r := &run{Launcher: l, Command: c, workload: c.Workload(l.Root), process: gate.process, caught: caught}
	if !l.Yield {
		if err := r.enter(ctx); err != nil {
			gate.refuse()
			if i, ended := errors.AsType[interruption](err); ended {
				return Result{Name: c.Name, Class: c.Class, Status: 128 + int(i.Signal), Signal: unix.SignalName(i.Signal)}, r.leave()
			}
			return Result{}, errors.Join(err, r.leave())
		}
	}
	started := time.Now()
	base, err := r.begin(gate)
	if err != nil {
		state, waitErr := r.process.Wait()
		result := Result{Name: c.Name, Class: c.Class}
		if waitErr == nil {
			result.Status, result.Signal = statusOf(state)
		}
		var refused *StartError
		switch {
		case errors.As(err, &refused):
			refused.Name = c.Args[0]
		case result.Signal != "":
			// A signal ended the command before it got any CPU time.
			// Best-effort work may wait long for it.
			return result, r.leave()
		}
		return Result{}, errors.Join(err, r.leave())
	}
	result, err := r.wait(started, base)
	return result, errors.Join(err, r.leave())
}
