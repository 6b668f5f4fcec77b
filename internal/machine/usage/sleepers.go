package usage

import (
	"sync"
	"time"

	"tenon.sh/tenon/internal/machine/reread"
	"tenon.sh/tenon/internal/model/node"
)

// sleepers holds the counters of workloads at the last snapshot. While a
// workload uses no CPU, its counters stay valid, except for its memory: the
// kernel may reclaim some, or charge more.
type sleepers struct {
	mu       sync.Mutex
	of       []node.Workload
	families []family
	last     []lastUse // last counters of each workload in of
	cycle    reread.Cycle
}

// A family is all workloads directly below one cgroup. The cgroup's counter of
// CPU time includes theirs. So if it did not change, all workloads of the
// family slept.
type family struct {
	cgroup string
	used   node.Maybe[time.Duration]
	slept  bool // no workload of the family has run since the last snapshot
}

type lastUse struct {
	known  bool
	due    bool // the memory must be read, even if the workload slept
	usage  node.Usage
	family int // index in families, or noFamily
}

// noFamily is the family of a workload without other workloads beside it.
const noFamily = -1

// Workloads reads those counters of workloads that each snapshot needs fresh, and calls
// pass for each workload. gone is true if the workload's cgroup does not exist any more. On
// a resident host, it reads a workload again only after this has used CPU. It reads its
// memory once within slowWithin, and everything while memory is scarce. So Workloads may
// pass on a sleeping workload whose cgroup was removed, until its next read.
func (c *Counters) Workloads(at time.Time, workloads []node.Workload, scarce bool, pass func(w *node.Workload, u *node.Usage, gone bool)) {
	if c.sleepers == nil {
		for i := range workloads {
			used, gone := c.workload(&workloads[i], nil)
			pass(&workloads[i], &used, gone)
		}
		return
	}
	x := c.sleepers
	x.mu.Lock()
	defer x.mu.Unlock()
	x.follow(workloads)
	for i := range x.cycle.Due(at, len(x.last), reread.Slower(slowWithin, len(x.last))) {
		x.last[i].due = true
	}
	for i := range x.families {
		f := &x.families[i]
		before := f.used
		f.used = node.Maybe[time.Duration]{}
		if used, err := c.tree.CPUUsage(f.cgroup); err == nil {
			f.used = node.Some(used)
		}
		f.slept = f.used.Known() && f.used == before
	}
	for i := range workloads {
		last := &x.last[i]
		var asleep *node.Usage
		if last.known && !scarce {
			asleep = &last.usage
		}
		gone := false
		switch {
		case asleep == nil || last.family == noFamily || !x.families[last.family].slept:
			if last.due {
				asleep = nil
			}
			last.usage, gone = c.workload(&workloads[i], asleep)
			// Without a CPU time, it is unknown whether the workload sleeps.
			last.known, last.due = !gone && last.usage.CPU.Known(), false
		case last.due:
			gone = c.readMemory(&last.usage, string(workloads[i].Cgroup))
			last.known, last.due = !gone, false
		}
		pass(&workloads[i], &last.usage, gone)
	}
}

// follow takes another list of workloads. It keeps the counters of best-effort
// workloads that are in both lists, because to read thousands again whenever
// one comes or goes would take long. The cgroup of such a workload may have
// been removed and made again. The new one's counters are then read when it has
// run, or when they are due.
func (x *sleepers) follow(workloads []node.Workload) {
	if len(x.of) == len(workloads) && (len(workloads) == 0 || &x.of[0] == &workloads[0]) {
		return
	}
	last := make(map[node.CgroupPath]node.Usage, len(x.last))
	for i, w := range x.of {
		if x.last[i].known && w.Class == node.BE {
			last[w.Cgroup] = x.last[i].usage
		}
	}
	used := make(map[string]node.Maybe[time.Duration], len(x.families))
	for _, f := range x.families {
		used[f.cgroup] = f.used
	}
	x.of, x.last, x.families = workloads, make([]lastUse, len(workloads)), nil
	for i, w := range workloads {
		if w.Class == node.BE {
			x.last[i].usage, x.last[i].known = last[w.Cgroup], last[w.Cgroup].CPU.Known()
		}
	}
	members := map[node.CgroupPath]int{}
	for _, w := range workloads {
		members[w.Cgroup.Parent()]++
	}
	at := map[node.CgroupPath]int{}
	for i, w := range workloads {
		p := w.Cgroup.Parent()
		if x.last[i].family = noFamily; p == "" || members[p] < 2 {
			continue
		}
		if _, has := at[p]; !has {
			at[p] = len(x.families)
			x.families = append(x.families, family{cgroup: string(p), used: used[string(p)]})
		}
		x.last[i].family = at[p]
	}
}
