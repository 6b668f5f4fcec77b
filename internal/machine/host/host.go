// Package host is the real node: it reads kernel files into a node.Snapshot and
// performs plan.Steps. Each part of the node is a package of its own. Package
// host combines them and holds the knob cache.
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
	"tenon.sh/tenon/internal/machine/reclaim"
	"tenon.sh/tenon/internal/machine/restore"
	"tenon.sh/tenon/internal/machine/topology"
	"tenon.sh/tenon/internal/machine/usage"
	"tenon.sh/tenon/internal/machine/vendormark"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// Options select the node. The zero Options select the running system.
type Options struct {
	Tree       *cgroup.Tree // nil: found in FS
	FS         proc.FS      // zero: proc.Default()
	JournalDir string       // "": journal.DefaultDir
	// Disposable means that the cgroups and processes of this host are only
	// there for Tenon, as in the lab. A restore then ends the processes.
	// Processes of a user are not ended.
	Disposable bool
	// Resident means that this host lives as long as the agent (tenond). It
	// caches knobs and reads them again in turn. It omits workloads whose
	// cgroup no longer exists. So that Tenon forgets no change, it also shows
	// each knob that an earlier Tenon process has changed.
	Resident bool
	// Try lets Capabilities create a temporary cgroup where existing cgroups do
	// not show whether the kernel has a file. Without Try, Capabilities writes
	// nothing, and the answer is "not known".
	Try bool
	// Only is set by a host that manages one cgroup: see capability.Node. The cgroup
	// must exist at the first snapshot and at the first call of Capabilities.
	Only node.CgroupPath
	// Spare lists processes that Tenon must never stop or end, such as the
	// watchdog of tenond. PID 1, this process and the processes in the journal
	// need not be in the list.
	Spare func() []int
	// Behalf is the process that the journal records as the author of changes;
	// nil means this process. A watchdog sets it to the agent.
	Behalf *journal.Session
}

// Host is the running machine. It is safe for concurrent use. Several processes
// may share its journal.
type Host struct {
	tree    *cgroup.Tree // nil: no usable cgroups
	noTree  error
	fs      proc.FS
	journal *journal.Journal
	opened  time.Time

	can       func() node.Capabilities // probes once
	probed    capability.Node
	topology  *topology.Cache
	counters  *usage.Counters
	delays    *usage.Delays
	blocks    *blockio.Devices
	controls  *cachectl.Groups
	marks     *vendormark.Marks
	isolation *isolation.Isolation
	runs      *runs
	reclaims  *reclaim.Worker
	changes   *change.Knobs // writes and undoes the knobs of all these parts
	restorer  *restore.Restorer
	cache     *knobCache // nil unless resident
	shown     shownKnobs

	mu        sync.Mutex // guards the fields below
	workloads map[node.WorkloadID]node.Workload
	sorted    []node.Workload // workloads in order; nil: must be sorted again
	swept     []string        // all cgroups at the last Sweep; nil: none yet, or workloads changed since
	latest    node.Capabilities
}

// Open finds the parts of the node. It writes nothing: the first change creates
// the journal. On a machine without cgroups, Open succeeds, and later calls
// that need cgroups fail.
func Open(o Options) (*Host, error) { return open(o, isolation.Kernel{}) }

// open does the same as Open. k holds the models of kernel parts that tests use.
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
	h.probed = capability.Node{
		FS: h.fs, Tree: h.tree, NoTree: h.noTree, Topology: h.topology, Devices: h.blocks, Controls: h.controls,
		Only: o.Only, Journal: probeJournal{h.journal, h.tree},
	}
	h.can = sync.OnceValue(func() node.Capabilities {
		if o.Try {
			return capability.Try(h.probed)
		}
		return capability.Look(h.probed)
	})
	return h, nil
}

// maxOpen returns how many files each cgroup hierarchy may keep open: an eighth of
// the limit of this process. On cgroup v1, at most four hierarchies have counters
// (four eighths), and the one of cpuset keeps half as many files (a sixteenth). So
// more than three eighths remain for the journal and the sockets.
func maxOpen() int {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
		return 256
	}
	return int(min(limit.Cur, 1<<20) / 8)
}

// wire creates the parts of the host, and gives them the functions that they
// need from each other.
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
	h.reclaims = reclaim.New(reclaim.Kernel{Write: h.reclaim, Stolen: h.stolen}, h.now)
	h.changes.Use(h.adapters())
	h.restorer = restore.New(restore.Options{
		FS: h.fs, Tree: h.tree, NoTree: h.noTree, Journal: h.journal, Knobs: h.changes, Controls: h.controls,
		Kernel: h.Kernel, RemoveGroup: h.RemoveGroup, TakeBackLate: h.isolation.TakeBackLate,
	})
}

// now returns the time for snapshots: the wall clock at the start plus the time
// that has passed since. So a change of the wall clock does not change rates,
// and the differences between times are the same in a replay.
func (h *Host) now() time.Time { return h.opened.Add(time.Since(h.opened)).Round(0) }

// Close closes the journal, and unloads the BPF scheduler. It does not undo
// other changes: see RestoreOwn.
func (h *Host) Close() error {
	if h.cache != nil && h.tree != nil {
		h.tree.CloseAll()
	}
	h.isolation.Close()
	return errors.Join(h.delays.Stop(), h.journal.Close())
}

// Capabilities returns what the node can do. The first call probes the kernel.
func (h *Host) Capabilities() node.Capabilities {
	if t, err := h.topology.Read(h.now()); err == nil {
		return maps.Clone(capabilitiesOf(h, t))
	}
	return maps.Clone(h.can())
}

// capabilitiesOf returns what the node can do with the present topology t. All
// snapshots share the result, so it must not change.
func capabilitiesOf(h *Host, t node.Topology) node.Capabilities {
	can := h.can()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.latest == nil {
		h.latest = can
	}
	h.latest = h.probed.Follow(h.latest, t)
	return h.latest
}

// Manage adds a workload to the snapshots. It replaces a workload with the same
// ID.
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

// Show sets which knobs snapshots show for every cgroup. Before the first call,
// these are node.Files. A host that is not resident always adds node.Files. To
// read knobs that no policy needs would be most of the cost of an idle agent.
func (h *Host) Show(files []node.File) {
	files = h.isolation.Show(h.controls.Show(h.blocks.Show(files)), h.can())
	h.cache.show(files)
	h.shown.showFiles(files)
}

// Delays returns the part that measures how long threads wait for a CPU.
// Snapshots show these waits while the measurement is enabled.
func (h *Host) Delays() *usage.Delays { return h.delays }

// Unread says which kernel files of the last snapshots could not be read, or only
// in part, and why. It is "" if all could be read. What these files say is absent
// from the snapshots.
func Unread(h *Host) string {
	var texts []string
	for _, text := range []string{h.counters.Trouble(), h.topology.Trouble()} {
		if text != "" {
			texts = append(texts, text)
		}
	}
	return strings.Join(texts, "; ")
}

// Isolation returns the part that keeps best-effort threads away from
// latency-sensitive ones.
func (h *Host) Isolation() *isolation.Isolation { return h.isolation }

// Reclaims returns the part that has the kernel reclaim memory of workloads. Snapshots
// show what became of its orders.
func (h *Host) Reclaims() *reclaim.Worker { return h.reclaims }

// reclaim asks the kernel to reclaim memory from a cgroup.
func (h *Host) reclaim(ctx context.Context, p node.CgroupPath, n unit.Bytes) error {
	if err := h.needTree(); err != nil {
		return fmt.Errorf("reclaim memory in %s: %w", p, err)
	}
	return cgroup.Reclaim(ctx, h.tree, string(p), n)
}

// stolen reads what the kernel has reclaimed from a cgroup so far.
func (h *Host) stolen(p node.CgroupPath) (unit.Bytes, error) {
	if err := h.needTree(); err != nil {
		return 0, fmt.Errorf("read what was reclaimed in %s: %w", p, err)
	}
	return cgroup.Stolen(h.tree, string(p))
}

// Guard repairs the attributes of threads. A snapshot must not do this, because
// it writes nothing. The loop calls Guard after the steps of each tick.
func (h *Host) Guard() error { return h.isolation.Guard(h.now(), h.listManaged()) }

// Session returns the process that the journal names as the author of changes.
func (h *Host) Session() journal.Session { return h.journal.Session() }

// Kernel returns how this kernel rounds the values that Tenon writes.
func (h *Host) Kernel() node.Kernel {
	k := node.Kernel{PageSize: unit.Bytes(os.Getpagesize()), MB: h.controls.Rounding()}
	if h.tree != nil {
		k.CgroupVersion, k.RecursiveProtection = h.tree.Version(), h.tree.RecursiveProtection
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

// Inode returns the inode number of a cgroup. A cgroup that is removed and made
// again has another number.
func (h *Host) Inode(p node.CgroupPath) (uint64, error) {
	if err := h.needTree(); err != nil {
		return 0, fmt.Errorf("inode of %s: %w", p, err)
	}
	return h.inode(p)
}

// Reread clears the knob cache of a resident host. Call it if another process
// may have written knobs.
func (h *Host) Reread() { h.cache.clear() }

// Forget removes a workload from the snapshots. It changes nothing on the node.
func (h *Host) Forget(id node.WorkloadID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.workloads, id)
	h.sorted = nil
}

// listManaged returns the managed workloads in a stable order. The caller must
// not change the slice.
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

// Adopt makes this process responsible for the knobs that earlier Tenon
// processes have changed: see change.Knobs.
func (h *Host) Adopt() (recovered int, err error) { return h.changes.Adopt() }

// Restore undoes the changes of all Tenon processes since boot: see
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

// A LabRuns is the error of a restore beside a lab with this pid: the lab would lose the
// processes that it measures.
type LabRuns int

func (pid LabRuns) Error() string {
	return fmt.Sprintf("an experiment of tenon lab runs (process %d), and would lose its processes and settings: wait until it has ended, or end it with Ctrl-C or kill %[1]d; then it puts back what it changed", int(pid))
}

// CheckLabs returns a LabRuns if a lab runs on this node that is not this process.
func (h *Host) CheckLabs() error {
	pids, err := h.restorer.LivingLabs()
	if err == nil && len(pids) > 0 {
		err = LabRuns(pids[0])
	}
	return err
}

// RepairJournal writes the journal file again if another program has damaged it
// since this process last read it: see journal.Repair.
func (h *Host) RepairJournal() (damage, lost string, err error) { return h.journal.Repair() }

// Prepare makes a cgroup ready to end. It must be called before any program
// asks the cgroup's processes to end.
func (h *Host) Prepare(k node.Knob) error { return h.runs.prepare(k) }

// Thaw thaws everything that Tenon froze. It is called before the agent stops.
func (h *Host) Thaw() error { return h.runs.thaw() }
