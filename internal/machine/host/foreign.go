package host

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"tenon.sh/tenon/internal/machine/reread"
	"tenon.sh/tenon/internal/model/node"
)

// foreign is the use of sched_ext and core scheduling by other components.
type foreign struct {
	at      time.Time
	name    string // of the loaded scheduler
	scanned time.Time
	seen    map[node.WorkloadID]bool // workloads at the last look
	cookies int                      // processes with a cookie that is not Tenon's
}

// lookForOthers checks whether other components use sched_ext and core
// scheduling. It does so rarely, since both are set up once, and when there is
// a new workload, since a container runtime can give each container a cookie.
// Only the loop of snapshots calls it; it holds i.mu only for the fields that
// other goroutines read.
func (h *Host) lookForOthers(s *node.Snapshot) {
	i := &h.isolation
	i.mu.Lock()
	f := i.foreign
	loaded := i.scheduler.loaded
	i.mu.Unlock()
	due := func(last time.Time, within time.Duration) bool {
		return last.IsZero() || s.At.Sub(last) >= within || s.At.Before(last)
	}
	if due(f.at, reread.Changed) {
		f.at, f.name = s.At, ""
		if loaded == nil && s.Can.Can(node.MechSchedExt) {
			f.name = foreignScheduler(h.fs.Sys)
		}
	}
	fresh := slices.ContainsFunc(s.Workloads, func(w node.Workload) bool { return !f.seen[w.ID] })
	if s.Can.Can(node.MechCoreSched) && (fresh || due(f.scanned, reread.Unchanged)) {
		f.scanned, f.cookies = s.At, h.foreignCookies()
		f.seen = make(map[node.WorkloadID]bool, len(s.Workloads))
		for _, w := range s.Workloads {
			f.seen[w.ID] = true
		}
	}
	s.Isolation.Foreign, s.Isolation.Cookies = f.name, f.cookies
	i.mu.Lock()
	defer i.mu.Unlock()
	i.foreign = f
}

// foreignCookies counts the processes with a cookie that is not Tenon's. It
// reads the first thread of each process.
func (h *Host) foreignCookies() (n int) {
	i := &h.isolation
	pids, err := h.fs.PIDs()
	if err != nil {
		return 0 // without /proc no decision is possible
	}
	i.mu.Lock()
	given := i.cookies != nil
	i.mu.Unlock()
	for _, pid := range pids {
		id, err := i.core.cookieOf(pid)
		if err != nil || id == 0 {
			continue
		}
		strange := i.strange(id)
		if !given { // an earlier agent's cookies are in the best-effort cgroups
			ours, _ := h.belongs(pid, node.FileCookie)
			strange = !ours
		}
		if strange {
			n++
		}
	}
	return n
}

// strange reports whether a cookie is not Tenon's. It can tell only after this
// process has its own cookie.
func (i *isolation) strange(id uint64) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	known := i.cookies != nil || len(i.bore) > 0
	return id != 0 && known && (i.cookies == nil || id != i.cookies.ID()) && !i.bore[id]
}

// hasStrange reports whether a thread has a cookie that is not Tenon's.
func (i *isolation) hasStrange(tid int) bool {
	id, err := i.core.cookieOf(tid)
	return err == nil && i.strange(id)
}

// foreignScheduler returns the name of the loaded sched_ext scheduler; empty:
// none.
func foreignScheduler(sys string) string {
	dir := filepath.Join(sys, "kernel/sched_ext")
	state, err := os.ReadFile(filepath.Join(dir, "state"))
	switch strings.TrimSpace(string(state)) {
	case "", "disabled", "disabling": // a scheduler that ends, perhaps Tenon's own, blocks a load only for a moment
		return ""
	}
	name, nameErr := os.ReadFile(filepath.Join(dir, "root/ops"))
	if err != nil || nameErr != nil {
		return "" // no sched_ext, or the scheduler just ended
	}
	return strings.TrimSpace(string(name))
}
