// Package cachectl divides L3 caches and memory bandwidth on the real node. It
// makes, changes and removes control groups of resctrl, moves threads between
// them, and adds them to snapshots.
package cachectl

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/kernel/resctrl"
	"tenon.sh/tenon/internal/machine/journal"
	"tenon.sh/tenon/internal/machine/reread"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// Groups manages the control groups of resctrl, and knows the threads in each.
// It caches what snapshots show. It reads a group again after each write, and
// otherwise once within the time reread.Changed. It is safe for concurrent use.
type Groups struct {
	proc    string       // where procfs is mounted
	tree    *cgroup.Tree // nil: this machine has no usable cgroups
	journal *journal.Journal

	mount sync.Mutex
	fs    *resctrl.FS // nil: not found yet

	mu     sync.Mutex
	wanted bool // a policy divides caches or bandwidth
	at     time.Time
	seen   node.Resctrl
	rule   node.Bandwidth
	values map[node.Knob]node.Value // knobs of control groups only
	use    map[node.Class]node.CacheUse

	own     map[node.CgroupPath]bool       // cgroups of workloads
	members map[node.CgroupPath]membership // control groups of the threads in each cgroup
	order   []node.CgroupPath              // cgroups in the order in which they are checked
	next    int
	checked time.Time // when threads were last checked
}

// New returns the control groups of a node. proc is the mount point of procfs.
// tree holds the node's cgroups, or is nil if there are no usable ones. The
// journal j records the groups that Tenon makes.
func New(proc string, tree *cgroup.Tree, j *journal.Journal) *Groups {
	return &Groups{proc: proc, tree: tree, journal: j}
}

// A membership names the control groups that hold the threads of a cgroup.
type membership struct {
	node.ControlGroup
	any bool // the cgroup has threads
}

// Show returns files without the knobs of resctrl. If the knob of control
// groups is among them, Groups reads resctrl from now on.
func (c *Groups) Show(files []node.File) []node.File {
	c.mu.Lock()
	defer c.mu.Unlock()
	if wanted := slices.Contains(files, node.FileControlGroup); wanted != c.wanted {
		c.wanted, c.at = wanted, time.Time{}
	}
	return slices.DeleteFunc(slices.Clone(files), func(f node.File) bool { return f.Category() == node.CategoryResctrl })
}

func (c *Groups) isWorkload(p node.CgroupPath) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.own[p]
}

// Rounding returns the granularity to which the kernel rounds memory bandwidth.
func (c *Groups) Rounding() node.Bandwidth {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rule
}

// Written records that a knob was written. The next snapshot then reads the
// knob again.
func (c *Groups) Written(k node.Knob) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if k.ControlGroup != "" {
		c.at = time.Time{}
	} else {
		delete(c.members, k.Cgroup)
	}
}

// Fill adds to a snapshot the resources of resctrl, the control group of each
// workload, and the knobs of the classes' control groups. It also adds all
// other knobs of resctrl that Tenon changed.
func (c *Groups) Fill(s *node.Snapshot, touches map[node.Knob]journal.Touch) {
	var touched []node.Knob
	for k := range touches {
		if Has(k) {
			touched = append(touched, k)
		}
	}
	c.mu.Lock()
	wanted, due := c.wanted, c.at.IsZero() || s.At.Sub(c.at) >= reread.Changed || s.At.Before(c.at)
	c.mu.Unlock()
	if !wanted && len(touched) == 0 {
		return
	}
	if due {
		c.readAll(s.At, touched)
	}
	c.mu.Lock()
	s.Resctrl, s.Cache, s.Knobs.Kernel.MB = c.seen, c.use, c.rule
	for k, v := range c.values {
		s.Knobs.Now[k] = v
	}
	missing := c.seen.Missing != ""
	c.mu.Unlock()
	if !missing && c.tree != nil {
		c.fillMembers(s, touched)
	}
}

// readAll reads the control groups.
func (c *Groups) readAll(at time.Time, touched []node.Knob) {
	seen, rule, values, use, err := c.readGroups(touched)
	if err != nil {
		seen, rule, values, use = node.Resctrl{Missing: err.Error()}, node.Bandwidth{}, nil, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if rule.Unit == node.BandwidthEighths && rule.Unit == c.rule.Unit {
		rule.Most = max(rule.Most, c.rule.Most)
	}
	c.at, c.seen, c.rule, c.values, c.use = at, seen, rule, values, use
}

func (c *Groups) readGroups(touched []node.Knob) (seen node.Resctrl, rule node.Bandwidth, values map[node.Knob]node.Value, use map[node.Class]node.CacheUse, err error) {
	fs, err := c.findMount()
	if errors.Is(err, resctrl.ErrNotMounted) {
		err = fmt.Errorf("%w: %s", err, MountCommand)
	}
	if err != nil {
		return
	}
	info, err := fs.Info()
	if err != nil {
		return
	}
	state, err := c.journal.State()
	if err != nil {
		return
	}
	groups, err := fs.Groups()
	if err != nil {
		return
	}
	root, err := fs.Schemata(resctrl.Default)
	if err != nil {
		return
	}
	seen = readDivision(info, root)
	rule = BandwidthRule(info.MB)
	mosts := []resctrl.Schemata{root}
	values, use = map[node.Knob]node.Value{}, map[node.Class]node.CacheUse{}
	for _, g := range groups {
		inode, err := fs.Inode(g)
		if err != nil {
			continue // it was removed meanwhile
		}
		used, err := isTaken(fs, state, g, inode)
		mine := node.IsControlGroup(g) && err == nil && !used
		if !mine {
			seen.Others++
			if node.IsControlGroup(g) {
				seen.Taken = append(seen.Taken, g)
			}
			if !slices.ContainsFunc(touched, func(k node.Knob) bool { return k.ControlGroup == g }) {
				continue
			}
		}
		s, err := fs.Schemata(g)
		if err != nil {
			continue
		}
		mosts = append(mosts, s)
		for _, f := range []node.File{node.FileL3, node.FileMB} {
			if v, known := schemataValue(s, f); known {
				values[node.Knob{ControlGroup: g, File: f}] = v
			}
		}
		if slices.Contains(node.ControlGroups, g) && mine && len(info.Events) > 0 {
			use[node.Class(g)] = cacheUse(fs, g, info.Events)
		}
	}
	if rule.Unit == node.BandwidthEighths {
		for _, s := range mosts {
			for _, n := range s[resctrl.MB] {
				rule.Most = max(rule.Most, n)
			}
		}
	}
	return seen, rule, values, use, nil
}

// readDivision converts what resctrl shows to the type of package node.
func readDivision(info resctrl.Info, root resctrl.Schemata) node.Resctrl {
	r := node.Resctrl{Groups: info.Groups}
	if info.L3.Mask != 0 {
		resource := resctrl.L3
		if info.L3.Apart {
			resource = resctrl.L3Code
		}
		r.L3 = node.CacheWays{Domains: domains(root[resource]), Mask: info.L3.Mask, Least: info.L3.Least, Sparse: info.L3.Sparse, Apart: info.L3.Apart}
	}
	if info.MB.Divisible {
		r.MBDomains, r.MBPerCore = domains(root[resctrl.MB]), info.MB.PerCore
	}
	if r.L3.Mask == 0 && len(r.MBDomains) == 0 {
		r.Missing = "this machine divides neither L3 caches nor memory bandwidth"
	}
	return r
}

func domains(by map[int]uint64) []node.CacheID {
	var ids []node.CacheID
	for id := range by {
		ids = append(ids, node.CacheID(id))
	}
	slices.Sort(ids)
	return ids
}

// BandwidthRule returns how the kernel rounds memory bandwidth. No file shows
// the maximum of absolute amounts (BandwidthEighths), but a new group starts
// with it.
func BandwidthRule(b resctrl.Bandwidth) node.Bandwidth {
	r := node.Bandwidth{Least: b.Least, Step: b.Step}
	switch {
	case !b.Divisible:
		return node.Bandwidth{}
	case b.Megabytes:
		// The kernel accepts any number. MaxUint32 means no limit
		// (MBA_MAX_MBPS).
		r = node.Bandwidth{Unit: node.BandwidthMegabytes, Step: 1, Most: math.MaxUint32}
	case b.Absolute:
		r.Unit = node.BandwidthEighths
	default:
		r.Unit, r.Most = node.BandwidthPercent, 100
	}
	return r
}

func cacheUse(fs *resctrl.FS, group string, events []string) node.CacheUse {
	var wanted []string
	for _, e := range []string{resctrl.Occupancy, resctrl.Traffic} {
		if slices.Contains(events, e) {
			wanted = append(wanted, e)
		}
	}
	sums, err := fs.Monitor(group, wanted...)
	if err != nil {
		return node.CacheUse{}
	}
	known := func(event string) node.Maybe[unit.Bytes] {
		n, is := sums[event]
		if !is {
			return node.Maybe[unit.Bytes]{}
		}
		return node.Some(n)
	}
	return node.CacheUse{Occupancy: known(resctrl.Occupancy), Traffic: known(resctrl.Traffic)}
}
