// Package host is the real node: it reads kernel files into a node.Snapshot and
// performs plan.Steps. Each part of the node has its own package. Package host
// combines them, and holds the knob cache.
package host

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/kernel/proc"
	"tenon.sh/tenon/internal/machine/bescheduler"
	"tenon.sh/tenon/internal/machine/blockio"
	"tenon.sh/tenon/internal/machine/cachectl"
	"tenon.sh/tenon/internal/machine/capability"
	"tenon.sh/tenon/internal/machine/change"
	"tenon.sh/tenon/internal/machine/isolation"
	"tenon.sh/tenon/internal/machine/journal"
	"tenon.sh/tenon/internal/machine/restore"
	"tenon.sh/tenon/internal/machine/topology"
	"tenon.sh/tenon/internal/machine/usage"
	"tenon.sh/tenon/internal/machine/vendormark"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// Options select the node to open. The zero Options select the running system.
type Options struct {
	Tree       *cgroup.Tree // nil: found in FS
	FS         proc.FS      // zero: proc.Default()
	JournalDir string       // "": journal.DefaultDir
	// Disposable says that the cgroups and processes of this host belong to
	// Tenon, as in the lab. Then a restore ends the processes. If it is false,
	// they belong to a user, and a restore does not end them.
	Disposable bool
	// Resident says that this host exists for as long as the agent runs, as in
	// tenond. It caches knobs and reads them again in turn. It omits workloads
	// whose cgroup no longer exists. It also shows every knob that an ended
	// Tenon process has changed, so that no change is forgotten.
	Resident bool
	// Try lets Capabilities create a temporary cgroup, if no existing cgroup
	// shows whether the kernel has a file. If Try is false, Capabilities writes
	// nothing, and answers "not known" in such a case.
	Try bool
	// Spare lists more processes that Tenon must never stop or end, such as the
	// watchdog of tenond. This process, PID 1 and the processes in the journal
	// are always among them.
	Spare func() []int
	// Behalf is the process in whose name this host journals. Nil stands for
	// this process. The host of the watchdog journals in the name of its agent.
	Behalf *journal.Session
}

// Host is the running machine. It is safe for concurrent use. Several processes
// may share one journal.
type Host struct {
	tree    *cgroup.Tree // nil: no usable cgroups
	noTree  error
	fs      proc.FS
	journal *journal.Journal
	opened  time.Time

	can       func() node.Capabilities
	topology  *topology.Cache
	counters  *usage.Counters
	delays    *usage.Delays
	blocks    *blockio.Devices
	controls  *cachectl.Groups
	marks     *vendormark.Marks
	isolation *isolation.Isolation
	runs      *runs
	changes   *change.Knobs // the changes of all these parts
	restorer  *restore.Restorer
	cache     *knobCache // nil unless resident
	shown     shownKnobs

	mu        sync.Mutex // guards the fields below
	workloads map[node.WorkloadID]node.Workload
	sorted    []node.Workload // of workloads; nil: stale
	swept     []string        // all cgroups at the last Sweep; nil: not known, or older than workloads
}

// Open finds the parts of the node. It writes nothing: the first change creates
// the journal. On a machine without cgroups Open succeeds, but operations that
// need cgroups fail.
func Open(o Options) (*Host, error) { return open(o, isolation.Kernel{}) }

// open does the same as Open. Tests pass models of parts of the kernel.
func open(o Options, k isolation.Kernel) (*Host, error) {
	h := &Host{tree: o.Tree, fs: o.FS, opened: time.Now(), workloads: map[node.WorkloadID]node.Workload{}}
	if h.fs == (proc.FS{}) {
		h.fs = proc.Default()
	}
	if h.tree == nil {
		h.tree, h.noTree = cgroup.Detect(h.fs.Proc)
		if h.noTree != nil {
			h.tree = nil
		}
	}
	if o.JournalDir == "" {
		o.JournalDir = journal.DefaultDir
	}
	boot, err := h.fs.BootID()
	if err != nil {
		return nil, fmt.Errorf("open the node: %w", err)
	}
	self, err := h.fs.PIDStat(os.Getpid())
	if err != nil {
		return nil, fmt.Errorf("open the node: %w", err)
	}
	session := journal.Session{PID: self.PID, Start: int64(self.StartTime), Lab: o.Disposable}
	if o.Behalf != nil {
		session = *o.Behalf
	}
	if h.journal, err = journal.Open(o.JournalDir, boot, session); err != nil {
		return nil, err
	}
	if o.Resident && h.tree != nil {
		h.tree = h.tree.KeepOpen(maxOpen())
	}
	h.wire(o.Resident, o.Spare, k)
	h.can = sync.OnceValue(func() node.Capabilities {
		n := capability.Node{FS: h.fs, Tree: h.tree, NoTree: h.noTree, Topology: h.topology, Devices: h.blocks, Controls: h.controls}
		if o.Try {
			return capability.Try(n)
		}
		return capability.Look(n)
	})
	return h, nil
}

// maxOpen returns how many files each hierarchy may keep open. On cgroup v1 at
// most four hierarchies have counters. The hierarchy of cpuset has settings,
// for which half as many files are enough. So at least three eighths of the
// descriptors of this process remain for the journal and the sockets.
func maxOpen() int {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
		return 256
	}
	return int(min(limit.Cur, 1<<20) / 8)
}

// wire creates the parts of the host. If a part needs functions of other parts,
// it gets them here.
func (h *Host) wire(resident bool, spare func() []int, k isolation.Kernel) {
	if resident {
		h.cache = newKnobCache(h.tree, h.knobOrNil)
	}
	h.topology = topology.New(h.fs)
	h.blocks = blockio.New(h.fs, h.tree)
	h.counters, h.delays = usage.New(h.fs, h.tree, resident), usage.NewDelays(h.tree, h.noTree)
	h.controls = cachectl.New(h.fs.Proc, h.tree, h.journal)
	h.marks = vendormark.New(h.tree, h.fs.Proc, h.journal, h.set, func(k node.Knob) error { return h.changes.Release(k) })
	h.isolation = isolation.New(isolation.Options{
		FS: h.fs, Tree: h.tree, Journal: h.journal, Topology: h.topology, Marks: h.marks,
		Resident: resident, Now: h.now, Inode: h.inode, Forget: h.cache.drop, Kernel: k,
	})
	h.changes = change.New(change.Options{
		FS: h.fs, Tree: h.tree, Journal: h.journal, Devices: h.blocks, Controls: h.controls, Saw: h.cache.store,
		Releasing: func(k node.Knob) {
			if k == bescheduler.Knob {
				h.isolation.Scheduler().Unwant()
			}
		},
		Released: h.isolation.LastReleased,
	})
	h.runs = &runs{tree: h.tree, journal: h.journal, fs: h.fs, changes: h.changes, marks: h.marks, exempt: h.isolation.Exempt(), cache: h.cache, now: h.now, spare: spare}
	h.changes.Use(h.adapters())
	h.restorer = restore.New(restore.Options{
		FS: h.fs, Tree: h.tree, NoTree: h.noTree, Journal: h.journal, Knobs: h.changes, Controls: h.controls,
		Kernel: h.Kernel, RemoveGroup: h.RemoveGroup, TakeBackLate: h.isolation.TakeBackLate,
	})
}

// now returns the time on the clock of the snapshots. This is the wall clock at
// the start plus the time since then. If the wall clock is set, rates stay
// correct, and a replay of the snapshots sees the same differences.
func (h *Host) now() time.Time { return h.opened.Add(time.Since(h.opened)).Round(0) }

// Close closes the journal, and unloads the BPF scheduler. It undoes no other
// change: see RestoreOwn.
func (h *Host) Close() error {
	if h.cache != nil && h.tree != nil {
		h.tree.CloseAll()
	}
	h.isolation.Close()
	return errors.Join(h.delays.Stop(), h.journal.Close())
}

// Capabilities returns what the node can do. The first call finds it out.
func (h *Host) Capabilities() node.Capabilities { return maps.Clone(h.can()) }

// Manage adds a workload to the snapshots. If they have a workload with the
// same ID, it replaces that one.
func (h *Host) Manage(w node.Workload) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.workloads[w.ID], h.sorted = w, nil
}

// ManageOnly makes these workloads the only ones in the snapshots.
func (h *Host) ManageOnly(all []node.Workload) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.workloads, h.sorted, h.swept = make(map[node.WorkloadID]node.Workload, len(all)), nil, nil
	for _, w := range all {
		h.workloads[w.ID] = w
	}
	h.cache.expire()
	h.delays.Expire()
	isolation.CgroupsChanged(h.isolation)
}

// Show sets which knobs snapshots show for every cgroup. The snapshots of a host
// that is not resident also show all node.Files. Before the first call, all
// snapshots show these. Reading knobs that are not needed would be most of the
// cost of an idle agent.
func (h *Host) Show(files []node.File) {
	files = h.isolation.Show(h.controls.Show(h.blocks.Show(files)), h.can())
	h.cache.show(files)
	h.shown.showFiles(files)
}

// Delays returns the part that counts how long threads wait for a CPU. If
// counting is enabled, snapshots show the waits.
func (h *Host) Delays() *usage.Delays { return h.delays }

// Isolation returns the part that keeps best-effort threads away from
// latency-sensitive ones.
func (h *Host) Isolation() *isolation.Isolation { return h.isolation }

// Guard changes threads where that is needed, because a snapshot must not
// write. The loop calls it after the steps of each tick.
func (h *Host) Guard() error { return h.isolation.Guard(h.now(), h.listManaged()) }

// Session returns the process in whose name this host journals.
func (h *Host) Session() journal.Session { return h.journal.Session() }

// Kernel returns how this kernel rounds written values.
func (h *Host) Kernel() node.Kernel {
	k := node.Kernel{PageSize: unit.Bytes(os.Getpagesize()), MB: h.controls.Rounding()}
	if h.tree != nil {
		k.CgroupVersion = h.tree.Version()
	}
	return k
}

// Knob reads the present value of one knob.
func (h *Host) Knob(k node.Knob) (node.Value, error) {
	if err := h.needTree(); err != nil {
		return nil, fmt.Errorf("read %v: %w", k, err)
	}
	return h.changes.Read(k)
}

// Inode returns the number that identifies the cgroup at a path. If a cgroup is
// removed and made again, the number changes.
func (h *Host) Inode(p node.CgroupPath) (uint64, error) {
	if err := h.needTree(); err != nil {
		return 0, fmt.Errorf("inode of %s: %w", p, err)
	}
	return h.inode(p)
}

// Reread clears the knob cache of a resident host. It is needed after another
// process may have written knobs.
func (h *Host) Reread() { h.cache.clear() }

// Forget drops a workload from the snapshots. It changes nothing on the node.
func (h *Host) Forget(id node.WorkloadID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.workloads, id)
	h.sorted = nil
}

// listManaged returns the workloads in a stable order. The caller must not
// change the slice.
func (h *Host) listManaged() []node.Workload {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.sorted == nil {
		h.sorted = slices.AppendSeq(make([]node.Workload, 0, len(h.workloads)), maps.Values(h.workloads))
		slices.SortFunc(h.sorted, func(a, b node.Workload) int { return strings.Compare(string(a.ID), string(b.ID)) })
	}
	return h.sorted
}

// needTree returns an error if the node has no usable cgroups.
func (h *Host) needTree() error {
	if h.tree == nil {
		return fmt.Errorf("this machine has no usable cgroups: %w", h.noTree)
	}
	return nil
}

// Rebase changes the values that a release restores: see change.Knobs.
func (h *Host) Rebase(change func(k node.Knob, before node.Value) node.Value) error {
	return h.changes.Rebase(change)
}

// Adopt makes this process responsible for knobs that other Tenon processes had
// changed when they ended: see change.Knobs.
func (h *Host) Adopt() (recovered int, err error) { return h.changes.Adopt() }

// Restore undoes all changes of any Tenon process since boot: see
// restore.Restorer.
func (h *Host) Restore(ctx context.Context) (restore.Report, error) { return h.restorer.All(ctx) }

// RestorePlan returns what Restore would do, and changes nothing.
func (h *Host) RestorePlan(ctx context.Context) (restore.Report, error) { return h.restorer.Plan(ctx) }

// RestoreOwn undoes the changes of this process.
func (h *Host) RestoreOwn(ctx context.Context) (restore.Report, error) {
	return h.restorer.UndoOwn(ctx)
}

// RestoreDeadLabs undoes the changes of labs that were killed.
func (h *Host) RestoreDeadLabs(ctx context.Context) (restore.Report, error) {
	return h.restorer.DeadLabs(ctx)
}

// RepairJournal writes the journal again if another program has damaged it
// after this process read it: see journal.Repair.
func (h *Host) RepairJournal() (damage, lost string, err error) { return h.journal.Repair() }

// Prepare makes a cgroup ready to end. It is needed whichever program then asks
// the processes to end.
func (h *Host) Prepare(k node.Knob) error { return h.runs.prepare(k) }

// Thaw thaws everything that Tenon froze. It is called before the agent stops.
func (h *Host) Thaw() error { return h.runs.thaw() }
