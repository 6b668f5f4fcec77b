package isolation

import (
	"os"
	"path/filepath"
	"strings"
	"time"

	"tenon.sh/tenon/internal/machine/reread"
	"tenon.sh/tenon/internal/model/node"
)

// otherComponents holds how other components use sched_ext and core scheduling.
type otherComponents struct {
	at      time.Time
	name    string // the sched_ext scheduler of another component
	scanned time.Time
	seen    map[node.WorkloadID]bool // workloads at the last scan of cookies
	cookies int                      // processes with a cookie that is not Tenon's
}

// lookForOthers checks whether other components use sched_ext or core
// scheduling. It checks rarely, because programs usually start to use them only
// once. After a new workload it checks at once, because a container runtime may
// give each container a cookie. Only the goroutine of the loop calls it. It
// holds i.mu only while it accesses fields that other goroutines read.
func (i *Isolation) lookForOthers(s *node.Snapshot) {
	i.mu.Lock()
	f := i.others
	i.mu.Unlock()
	loaded := i.scheduler.Loaded()
	due := func(last time.Time, within time.Duration) bool {
		return last.IsZero() || s.At.Sub(last) >= within || s.At.Before(last)
	}
	if due(f.at, reread.Changed) {
		f.at, f.name = s.At, ""
		if !loaded && s.Capabilities.Has(node.FeatureSchedExt) {
			f.name = foreignScheduler(i.fs.Sys)
		}
	}
	fresh := false
	for n := range s.Workloads {
		fresh = fresh || !f.seen[s.Workloads[n].ID]
	}
	if s.Capabilities.Has(node.FeatureCoreSched) && (fresh || due(f.scanned, reread.Unchanged)) {
		f.scanned, f.cookies = s.At, i.foreignCookies()
		f.seen = make(map[node.WorkloadID]bool, len(s.Workloads))
		for _, w := range s.Workloads {
			f.seen[w.ID] = true
		}
	}
	s.Isolation.Foreign, s.Isolation.Cookies = f.name, f.cookies
	i.mu.Lock()
	defer i.mu.Unlock()
	i.others = f
}

// foreignCookies returns how many processes have a cookie of another component.
// It reads only the first thread of each process.
func (i *Isolation) foreignCookies() (n int) {
	pids, err := i.fs.PIDs()
	if err != nil {
		return 0 // without /proc nothing is known
	}
	given := i.cookies.id() != 0
	for _, pid := range pids {
		id, err := i.cookies.CookieOf(pid)
		if err != nil || id == 0 {
			continue
		}
		foreign := i.cookies.isForeign(id)
		if !given { // cookies in best-effort cgroups come from an earlier agent
			ours, _ := i.belongs(pid, node.FileCookie)
			foreign = !ours
		}
		if foreign {
			n++
		}
	}
	return n
}

// foreignScheduler returns the name of the loaded sched_ext scheduler, or "" if
// none is loaded.
func foreignScheduler(sys string) string {
	dir := filepath.Join(sys, "kernel/sched_ext")
	state, err := os.ReadFile(filepath.Join(dir, "state"))
	switch strings.TrimSpace(string(state)) {
	case "", "disabled", "disabling": // "disabling" lasts only a moment, and may be Tenon's own scheduler
		return ""
	}
	name, nameErr := os.ReadFile(filepath.Join(dir, "root/ops"))
	if err != nil || nameErr != nil {
		return "" // no sched_ext, or the scheduler just ended
	}
	return strings.TrimSpace(string(name))
}
