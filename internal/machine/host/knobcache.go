package host

import (
	"maps"
	"slices"
	"sync"
	"time"

	"tenon.sh/tenon/internal/decide/writeconflict"
	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/machine/reread"
	"tenon.sh/tenon/internal/model/node"
)

// A knobCache holds the knob values of a resident host. Without it, the agent
// would read all knobs of a hundred workloads in every tick. That would be most
// of its cost.
type knobCache struct {
	tree     *cgroup.Tree
	readKnob func(node.Knob) node.Value

	mu     sync.Mutex
	files  []node.File       // knobs that are cached for every cgroup
	runs   bool              // snapshots show whether best-effort workloads run
	groups []node.CgroupPath // the cached cgroups
	extra  []node.Knob       // knobs that are cached in addition
	inodes map[node.CgroupPath]uint64
	known  map[node.Knob]node.Value // nil: could not be read
	order  []node.Knob              // the cached knobs
	stale  bool                     // the inodes must be checked: a cgroup may have been made again
	gaps   bool                     // some knobs of order may be missing in known
	now    map[node.Knob]node.Value // known without nil values, for snapshots; nil: out of date
	asked  readRequest              // the arguments of the last call of read

	touched            []node.Knob  // knobs that Tenon has changed
	ours, others       []node.Knob  // order, divided into the knobs in touched and all others
	changed, unchanged reread.Cycle // which of ours and of others are due

	overwritten map[node.Knob]time.Time // when another component was last found to have written one of ours
	contested   []node.Knob             // those that it was found to have written again, the oldest first
	watch       func([]string)          // is told the cgroups of contested whenever they may have changed; nil: nothing is
	watched     []string                // what it was told last; nil: it must be told again

	inner      []node.CgroupPath // cgroups inside best-effort workloads
	innerStale bool

	ending map[node.Knob]node.Run // cgroups that were asked to end, or killed
}

// newKnobCache returns an empty cache of the knobs in tree. The function read
// reads one knob from the kernel, or returns nil.
func newKnobCache(tree *cgroup.Tree, read func(node.Knob) node.Value) *knobCache {
	return &knobCache{tree: tree, readKnob: read, files: node.Files, runs: true, inodes: map[node.CgroupPath]uint64{}, known: map[node.Knob]node.Value{}, innerStale: true}
}

// A readRequest holds the arguments of a call of knobCache.read.
type readRequest struct {
	groups  []node.CgroupPath
	touched []node.Knob
}

// read returns the values of all knobs of the given cgroups, which must be
// sorted, and of the knobs that Tenon changed. It reads only new and due knobs
// from the kernel, and takes the others from the cache. The caller must not
// change the slices afterwards, nor the map. If no value has changed, read
// returns the same map as before.
func (c *knobCache) read(at time.Time, groups []node.CgroupPath, touched []node.Knob) map[node.Knob]node.Value {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dropEnding()
	if c.stale || !sharesMemory(groups, c.asked.groups) || !sharesMemory(touched, c.asked.touched) {
		c.asked = readRequest{groups, touched}
		c.arrange(groups, touched)
	}
	if c.gaps {
		for _, k := range c.order {
			if _, known := c.known[k]; !known {
				c.set(k, c.readKnob(k))
			}
		}
		c.gaps = false
	}
	c.readOurs(at)
	c.watchContested()
	for i := range c.unchanged.Due(at, len(c.others), reread.Slower(reread.Unchanged, len(c.others))) {
		c.set(c.others[i], c.readKnob(c.others[i]))
	}
	if c.now == nil {
		c.now = make(map[node.Knob]node.Value, len(c.known))
		for k, v := range c.known {
			if v != nil {
				c.now[k] = v
			}
		}
	}
	return c.now
}

// mostContested is the maximum number of knobs that every call of read reads.
const mostContested = 32

// readOurs reads those knobs that Tenon has changed and that are due. If another
// component has written one of them, it reads all of them: systemd and the kubelet write
// many at once. It also reads the knobs that another component writes again and again,
// as the kubelet does each minute, so that such a write lasts for one tick at most. The
// caller holds c.mu.
func (c *knobCache) readOurs(at time.Time) {
	found := false
	again := func(k node.Knob) {
		before, known := c.known[k]
		now := c.readKnob(k)
		c.set(k, now)
		if !known || before == nil || now == nil || now == before || !node.IsKept(now) {
			return
		}
		found = true
		if last, was := c.overwritten[k]; was && at.Sub(last) <= writeconflict.Remembered && len(c.contested) < mostContested && !slices.Contains(c.contested, k) {
			c.contested = append(c.contested, k)
		}
		if c.overwritten == nil {
			c.overwritten = map[node.Knob]time.Time{}
		}
		c.overwritten[k] = at
	}
	c.contested = slices.DeleteFunc(c.contested, func(k node.Knob) bool {
		_, ours := slices.BinarySearchFunc(c.touched, k, node.Knob.Compare)
		return !ours || at.Sub(c.overwritten[k]) > writeconflict.Remembered
	})
	for _, k := range c.contested {
		again(k)
	}
	for i := range c.changed.Due(at, len(c.ours), reread.Slower(reread.Changed, len(c.ours))) {
		again(c.ours[i])
	}
	if !found {
		return
	}
	for _, k := range c.ours {
		again(k)
	}
	maps.DeleteFunc(c.overwritten, func(_ node.Knob, last time.Time) bool { return at.Sub(last) > writeconflict.Remembered })
}

// watchContested tells c.watch the cgroups of the contested knobs. The caller holds c.mu.
func (c *knobCache) watchContested() {
	if c.watch == nil {
		return
	}
	groups := []string{}
	for _, k := range c.contested {
		if k.ControlGroup == "" && !slices.Contains(groups, string(k.Cgroup)) {
			groups = append(groups, string(k.Cgroup))
		}
	}
	if c.watched == nil || !slices.Equal(groups, c.watched) {
		c.watched = groups
		c.watch(groups)
	}
}

// watchBy makes read tell watch which cgroups have contested knobs.
func (c *knobCache) watchBy(watch func([]string)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.watch = watch
}

// findOverwritten returns a contested knob of a cgroup that has another value than the
// cached one.
func (c *knobCache) findOverwritten(p node.CgroupPath) (k node.Knob, found bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range c.contested {
		if k.Cgroup != p || k.ControlGroup != "" {
			continue
		}
		known := c.known[k]
		if now := c.readKnob(k); known != nil && now != nil && now != known {
			return k, true
		}
	}
	return node.Knob{}, false
}

// sharesMemory reports whether two slices share the same memory.
func sharesMemory[T any](a, b []T) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// arrange sets which knobs the cache holds, and drops all others.
func (c *knobCache) arrange(groups []node.CgroupPath, touched []node.Knob) {
	touched = slices.Clone(touched)
	slices.SortFunc(touched, node.Knob.Compare)
	touched = slices.Compact(touched)
	var extra []node.Knob
	for _, k := range touched {
		if !slices.Contains(c.files, k.File) {
			extra = append(extra, k)
		}
	}
	moved := c.stale || !slices.Equal(groups, c.groups) || !slices.Equal(extra, c.extra)
	if moved {
		c.setCgroups(groups, extra)
	}
	if moved || !slices.Equal(touched, c.touched) {
		c.split(touched)
	}
}

// set stores the value of a knob that was read from the kernel.
func (c *knobCache) set(k node.Knob, v node.Value) {
	if old, known := c.known[k]; known && old == v {
		return
	}
	c.known[k], c.now = v, nil
}

// forgetValue removes a value from the cache. The next call of read then reads
// the knob from the kernel.
func (c *knobCache) forgetValue(k node.Knob) {
	delete(c.known, k)
	c.now, c.gaps = nil, true
}

// split divides the cached knobs into knobs that Tenon has changed and all
// other knobs.
func (c *knobCache) split(touched []node.Knob) {
	c.touched, c.ours, c.others = touched, nil, nil
	for _, k := range c.order {
		if _, changed := slices.BinarySearchFunc(touched, k, node.Knob.Compare); changed {
			c.ours = append(c.ours, k)
		} else {
			c.others = append(c.others, k)
		}
	}
}

// setCgroups sets which cgroups and knobs are cached. It drops the values of cgroups
// that snapshots no longer show, and of cgroups that were removed and made again.
func (c *knobCache) setCgroups(groups []node.CgroupPath, extra []node.Knob) {
	known, inodes := c.known, c.inodes
	c.known, c.inodes = make(map[node.Knob]node.Value, len(known)), make(map[node.CgroupPath]uint64, len(groups))
	c.order = c.order[:0]
	for _, p := range groups {
		inode, err := c.tree.Inode(string(p))
		if err == nil {
			c.inodes[p] = inode
		}
		same := err == nil && inodes[p] == inode
		delete(inodes, p)
		if !same {
			c.tree.Close(string(p))
		}
		keep := func(k node.Knob) {
			c.order = append(c.order, k)
			if v, had := known[k]; had && same {
				c.known[k] = v
			}
		}
		for _, f := range c.files {
			keep(node.Knob{Cgroup: p, File: f})
		}
		first, _ := slices.BinarySearchFunc(extra, node.Knob{Cgroup: p}, node.Knob.Compare)
		for _, k := range extra[first:] {
			if k.Cgroup != p {
				break
			}
			keep(k)
		}
	}
	for p := range inodes {
		c.tree.Close(string(p))
	}
	c.groups, c.extra, c.stale = groups, extra, false
	c.watched = nil // a cgroup may be another one now
	c.now, c.gaps = nil, true
}

// store stores the value that was read after a write, or forgets the value if
// err is not nil.
func (c *knobCache) store(k node.Knob, v node.Value, err error) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, cached := c.known[k]; !cached {
		return
	}
	if err != nil {
		c.forgetValue(k)
		return
	}
	c.set(k, v)
}

// drop removes the value of a knob from the cache. The next call of read then
// reads it from the kernel.
func (c *knobCache) drop(k node.Knob) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forgetValue(k)
}

// clear removes all values from the cache.
func (c *knobCache) clear() {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.known)
	c.now, c.gaps = nil, true
}

func (c *knobCache) inode(p node.CgroupPath) (uint64, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	inode, known := c.inodes[p]
	return inode, known
}

// show sets which knobs the cache holds for every cgroup.
func (c *knobCache) show(files []node.File) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	runs := slices.Contains(files, node.FileRun)
	files = slices.DeleteFunc(slices.Clone(files), func(f node.File) bool { return f == node.FileRun })
	if c.runs != runs || !slices.Equal(c.files, files) {
		c.files, c.runs, c.stale = files, runs, true
	}
}

// expire makes the next call of read check the inode of every cgroup.
func (c *knobCache) expire() {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stale, c.innerStale = true, true
}

// listedCgroups returns the cached list of inner cgroups. It calls list at the
// first call, and again after each call of expire.
func (c *knobCache) listedCgroups(list func() []node.CgroupPath) []node.CgroupPath {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.innerStale {
		c.inner, c.innerStale = list(), false
	}
	return c.inner
}

// showsRuns reports whether snapshots show the run state of best-effort
// workloads.
func (c *knobCache) showsRuns() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.runs
}

// follow makes the next calls of read read a knob from the kernel until its cgroup
// has ended. It reports whether the cgroup was already killed before this call.
func (c *knobCache) follow(k node.Knob, v node.Run) (killed bool) {
	if c == nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	killed = c.ending[k] == node.Ended
	if c.ending == nil {
		c.ending = map[node.Knob]node.Run{}
	}
	c.ending[k] = v
	return killed
}

// dropEnding makes the next read fetch the states of ending cgroups. The caller holds c.mu.
func (c *knobCache) dropEnding() {
	for k := range c.ending {
		switch v, cached := c.known[k]; {
		case !cached || v == node.Ended:
			delete(c.ending, k)
		default:
			c.forgetValue(k)
		}
	}
}
