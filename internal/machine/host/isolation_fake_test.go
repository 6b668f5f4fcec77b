package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/kernel/proc"
	"tenon.sh/tenon/internal/kernel/scx"
	"tenon.sh/tenon/internal/kernel/task"
	"tenon.sh/tenon/internal/machine/bescheduler"
	"tenon.sh/tenon/internal/machine/isolation"
	"tenon.sh/tenon/internal/machine/journal"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// A modelExt is a model of sched_ext in memory. It has the policies of threads,
// and at most one scheduler. It refuses what the kernel refuses.
type modelExt struct {
	mu       sync.Mutex
	policies map[int]task.Policy
	refuses  error // the error that load returns
	loads    []scx.Options
	now      *modelScheduler
	lacks    bool          // there is no policy SCHED_EXT
	keeps    error         // the error that shorten returns
	gate     chan struct{} // load waits until it is closed; nil: load does not wait
	waits    int           // number of loads that have begun
	changes  int           // number of attempts to change threads
}

func (m *modelExt) Load(o scx.Options) (bescheduler.Program, error) {
	m.mu.Lock()
	m.waits++
	gate := m.gate
	m.mu.Unlock()
	if gate != nil {
		<-gate
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.loads = append(m.loads, o)
	if m.refuses != nil {
		return nil, m.refuses
	}
	if m.now != nil && !m.now.closed {
		return nil, scx.ErrBusy
	}
	m.now = &modelScheduler{
		events: make(chan scx.Event, 8), params: o.Params, groups: map[uint64]scx.Group{}, pods: map[int]scx.Pod{},
	}
	return m.now, nil
}

func (m *modelExt) change(list task.List, from func(task.Policy) bool, to task.Policy) (n int, err error) {
	tids, err := list()
	if err != nil {
		return 0, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.changes++
	for _, tid := range tids {
		if p, lives := m.policies[tid]; lives && from(p) {
			if m.lacks {
				return n, task.ErrUnsupported
			}
			m.policies[tid] = to
			n++
		}
	}
	return n, nil
}

func (m *modelExt) Extend(list task.List, spare func(int) bool) (int, error) {
	but := func() ([]int, error) {
		tids, err := list()
		return slices.DeleteFunc(tids, func(tid int) bool { return spare != nil && spare(tid) }), err
	}
	return m.change(but, func(p task.Policy) bool { return p != task.Ext && !p.RealTime() }, task.Ext)
}

func (m *modelExt) Shorten(list task.List) (int, error) {
	m.mu.Lock()
	keeps := m.keeps
	m.mu.Unlock()
	if keeps != nil {
		return 0, keeps
	}
	return m.change(list, func(p task.Policy) bool { return p == task.Ext }, task.Normal)
}

func (m *modelExt) Count(tids []int) (n task.Policies, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, tid := range tids {
		switch p, lives := m.policies[tid]; {
		case !lives:
		case p == task.Ext:
			n.Ext++
		case p.RealTime():
			n.RealTime++
		default:
			n.Fair++
		}
	}
	return n, nil
}

// set adds a thread or changes the policy of one. The host does not know of the
// change.
func (m *modelExt) set(tid int, p task.Policy) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.policies[tid] = p
}

func (m *modelExt) policy(tid int) task.Policy {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.policies[tid]
}

func (m *modelExt) loaded() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.loads)
}

// A modelScheduler is a scheduler that only records the orders that it gets.
type modelScheduler struct {
	mu      sync.Mutex
	events  chan scx.Event
	groups  map[uint64]scx.Group
	pods    map[int]scx.Pod
	params  scx.Params
	most    unit.MilliCPU
	beats   int
	writes  int // number of writes of orders
	closed  bool
	crowded bool  // no CPU has room
	full    error // the error that Classify returns
	uncaps  error // the error that SetCap returns
}

func (s *modelScheduler) do(f func()) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return scx.ErrClosed
	}
	f()
	return nil
}

func (s *modelScheduler) SetGroup(g scx.Group) error {
	err := s.do(func() {
		if s.full == nil {
			s.groups[g.Cgroup] = g
			s.writes++
		}
	})
	return errors.Join(err, s.full)
}

func (s *modelScheduler) DropGroup(id uint64) error {
	return s.do(func() { delete(s.groups, id); s.writes++ })
}

func (s *modelScheduler) Group(id uint64) (g scx.Group, is bool, err error) {
	err = s.do(func() { g, is = s.groups[id] })
	return g, is, err
}

func (s *modelScheduler) SetPod(p scx.Pod) error {
	return s.do(func() { s.pods[p.Slot] = p; s.writes++ })
}

func (s *modelScheduler) Pod(slot int) (p scx.Pod, err error) {
	err = s.do(func() { p = s.pods[slot] })
	return p, err
}

func (s *modelScheduler) SetParams(p scx.Params) error { return s.do(func() { s.params = p }) }

func (s *modelScheduler) SetCap(c unit.MilliCPU) error {
	err := s.do(func() {
		if s.uncaps == nil {
			s.most = c
			s.writes++
		}
	})
	return errors.Join(err, s.uncaps)
}

func (s *modelScheduler) HasRoom(int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.crowded
}

func (s *modelScheduler) Beat() error { return s.do(func() { s.beats++ }) }

func (s *modelScheduler) Events() <-chan scx.Event { return s.events }

func (s *modelScheduler) Status() (v scx.Status, err error) {
	err = s.do(func() { v.State, v.Running, v.Expels = "enabled", true, 7 })
	return v, err
}

func (s *modelScheduler) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.closed = true
		close(s.events)
	}
	return nil
}

// A bench is a host on a cgroup tree of plain files, with a model of sched_ext.
type bench struct {
	*Host
	ext  *modelExt
	core *modelCore // nil: the kernel itself
	dir  string
	root string
	next int // thread id
}

// newBench returns a bench on cgroup v2 with the groups be (with be/a and be/b)
// and ls.
func newBench(t testing.TB, resident bool) *bench { return newCoreBench(t, resident, nil) }

// newCoreBench does the same as newBench, on a kernel with the given core
// scheduling.
func newCoreBench(t testing.TB, resident bool, core *modelCore) *bench {
	t.Helper()
	dir := t.TempDir()
	b := &bench{core: core, dir: dir, root: filepath.Join(dir, "v2"), next: 1 << 24} // the kernel never gives such a number to a thread
	mount := fmt.Sprintf("31 24 0:28 / %s rw - cgroup2 cgroup2 rw\n", b.root)
	b.put(t, filepath.Join(dir, "proc/self/mountinfo"), mount)
	b.put(t, filepath.Join(b.root, "cgroup.controllers"), "cpu cpuset memory pids\n")
	b.put(t, filepath.Join(b.root, "cgroup.threads"), "")
	for _, p := range []string{"be", "be/a", "be/b", "ls"} {
		b.group(t, p)
	}
	real := proc.Default()
	for in, names := range map[string][]string{
		real.Proc: {"stat", "uptime", "meminfo", "sys", "self", strconv.Itoa(os.Getpid())},
		real.Sys:  {"devices"},
	} {
		for _, name := range names {
			link := filepath.Join(dir, "files", in, name)
			do(t, os.MkdirAll(filepath.Dir(link), 0o755), os.Symlink(filepath.Join(in, name), link))
		}
	}
	b.open(t, resident)
	return b
}

// open opens the host. A second call simulates another process, which finds the
// journal of the first one.
func (b *bench) open(t testing.TB, resident bool) {
	t.Helper()
	tree, err := cgroup.Detect(filepath.Join(b.dir, "proc"))
	if err != nil {
		t.Fatal(err)
	}
	if b.ext == nil {
		b.ext = &modelExt{policies: map[int]task.Policy{}}
	}
	kernel := isolation.Kernel{SchedExt: b.ext, Policies: b.ext}
	if b.core != nil {
		kernel.Cores = b.core
	}
	fs := proc.FS{Proc: filepath.Join(b.dir, "files", proc.Default().Proc), Sys: filepath.Join(b.dir, "files", proc.Default().Sys)}
	h, err := open(Options{Tree: tree, FS: fs, JournalDir: filepath.Join(b.dir, "journal"), Resident: resident}, kernel)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close() })
	h.can = func() node.Capabilities { return node.Capabilities{node.FeatureSchedExt: available("model")} }
	h.Show([]node.File{node.FileCPUWeight, node.FileCPUMax, node.FileScheduler, node.FilePolicy, node.FileCookie, node.FileIdentity})
	for _, w := range []node.Workload{
		{ID: "a", Class: node.BE, Cgroup: "be/a", ContentionRoot: "be"},
		{ID: "b", Class: node.BE, Cgroup: "be/b", ContentionRoot: "be"},
		{ID: "web", Class: node.LS, Cgroup: "ls", ContentionRoot: "ls"},
	} {
		h.Manage(w)
	}
	b.Host = h
}

func (b *bench) put(t testing.TB, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func (b *bench) group(t testing.TB, p string) {
	t.Helper()
	for file, text := range map[string]string{
		"cgroup.procs": "", "cgroup.threads": "", "cpu.weight": "100\n", "cpu.idle": "0\n", "cpu.max": "max 100000\n", "cpu.max.burst": "0\n",
		"cgroup.freeze": "0\n", "cgroup.kill": "", "cgroup.events": "populated 1\nfrozen 0\n",
	} {
		b.put(t, filepath.Join(b.root, p, file), text)
	}
}

// thread adds a thread with the given policy to a group.
func (b *bench) thread(t testing.TB, p string, policy task.Policy) int {
	t.Helper()
	b.next++
	file := filepath.Join(b.root, p, "cgroup.threads")
	old, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	b.put(t, file, string(old)+strconv.Itoa(b.next)+"\n")
	b.ext.set(b.next, policy)
	return b.next
}

func (b *bench) snapshot(t testing.TB) node.Snapshot {
	t.Helper()
	s, err := b.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Guard(); err != nil {
		t.Fatal(err)
	}
	return s
}

// guard calls Guard with the present time plus d.
func (b *bench) guard(t testing.TB, d time.Duration) {
	t.Helper()
	do(t, b.isolation.Guard(b.now().Add(d), b.listManaged()))
}

// order applies an order, as a step of a plan does.
func (b *bench) order(t testing.TB, p node.CgroupPath, text string) error {
	t.Helper()
	v, err := node.ParseValue(node.FileSchedulerGroup, text)
	if err != nil {
		t.Fatal(err)
	}
	return b.Apply(t.Context(), plan.Step{Knob: orderOf(p), To: v, Owner: plan.OwnerConformance})
}

func orderOf(p node.CgroupPath) node.Knob { return node.Knob{Cgroup: p, File: node.FileSchedulerGroup} }

// entryOf returns the entry of a cgroup in the scheduler's maps.
func (b *bench) entryOf(t testing.TB, p node.CgroupPath) (scx.Group, bool) {
	t.Helper()
	inode, err := b.tree.Inode(string(p))
	if err != nil {
		t.Fatal(err)
	}
	g, is, err := b.ext.now.Group(inode)
	if err != nil {
		t.Fatal(err)
	}
	g.Cgroup = 0
	return g, is
}

// set writes a value. It waits until the work that this starts in other
// goroutines is done.
func (b *bench) set(t testing.TB, k node.Knob, v node.Value) error {
	t.Helper()
	err := b.Apply(t.Context(), plan.Step{Knob: k, To: v, Owner: plan.OwnerConformance})
	if !errors.Is(err, bescheduler.ErrLoading) {
		return err
	}
	waitUntil(t, "the load has ended", func() bool { return !b.isolation.Scheduler().Loading() })
	waitUntil(t, "and is reported", func() bool { return len(b.isolation.Events()) > 0 })
	<-b.isolation.Events()
	if b.isolation.Scheduler().Loaded() {
		return nil
	}
	return err
}

func (b *bench) release(t *testing.T, k node.Knob) error {
	t.Helper()
	return b.Apply(t.Context(), plan.Step{Knob: k, To: node.ThreadsNormal, Owner: plan.OwnerConformance, Release: true})
}

func policyOf(p node.CgroupPath) node.Knob { return node.Knob{Cgroup: p, File: node.FilePolicy} }

// treeOf returns the files of a tree with their content.
func treeOf(t testing.TB, root string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(file)
		all[file] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// waitUntil waits for a condition that another goroutine will fulfil.
func waitUntil(t testing.TB, what string, so func() bool) {
	t.Helper()
	for end := time.Now().Add(5 * time.Second); !so(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not so within 5 s", what)
		}
	}
}

func (b *bench) journaled(t *testing.T) journal.State {
	t.Helper()
	s, err := b.journal.State()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// procOf writes the files of /proc that say in which group each thread is.
func (b *bench) procOf(t *testing.T, tids map[int]string) {
	t.Helper()
	for tid, p := range tids {
		b.put(t, filepath.Join(b.fs.Proc, strconv.Itoa(tid), "cgroup"), "0::/"+strings.Trim(p, "/")+"\n")
	}
}

var errBoom = errors.New("boom")

// demotedFor is the time for which a demoted thread stays in the fair class.
const demotedFor = 5 * time.Second
