package host

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"tenon.sh/tenon/internal/model/node"
)

// foreign is what others do with the means of the ladder.
type foreign struct {
	at      time.Time
	name    string // of a scheduler
	scanned time.Time
	seen    map[node.WorkloadID]bool // by then
	cookies int                      // processes that have one which is not ours
}

// lookForOthers looks who else uses sched_ext and core scheduling: seldom,
// since both are set up once, and when there is new work, since a container
// runtime can give each container a cookie.
// Only the loop of snapshots does so, hence nothing waits for it: i.mu is held
// for what others see alone.
func (h *Host) lookForOthers(s *node.Snapshot) {
	i := &h.isolation
	i.mu.Lock()
	f := i.foreign
	loaded := i.scheduler.loaded
	i.mu.Unlock()
	due := func(last time.Time, within time.Duration) bool {
		return last.IsZero() || s.At.Sub(last) >= within || s.At.Before(last)
	}
	if due(f.at, verifyWithin) {
		f.at, f.name = s.At, ""
		if loaded == nil && s.Can.Can(node.MechSchedExt) {
			f.name = foreignScheduler(h.fs.Sys)
		}
	}
	fresh := slices.ContainsFunc(s.Workloads, func(w node.Workload) bool { return !f.seen[w.ID] })
	if s.Can.Can(node.MechCoreSched) && (fresh || due(f.scanned, glanceWithin)) {
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

// foreignCookies counts the processes of the machine that have another cookie
// than ours. Of each the first thread stands for all.
func (h *Host) foreignCookies() (n int) {
	i := &h.isolation
	pids, err := h.fs.PIDs()
	if err != nil {
		return 0 // without /proc there is nothing to decide on
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
		if !given { // what an earlier agent has given out is in its groups
			ours, _ := h.belongs(pid, node.FileCookie)
			strange = !ours
		}
		if strange {
			n++
		}
	}
	return n
}

// strange reports whether a cookie is somebody else's, as far as that can be
// told: once this process knows its own.
func (i *isolation) strange(id uint64) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	known := i.cookies != nil || len(i.bore) > 0
	return id != 0 && known && (i.cookies == nil || id != i.cookies.ID()) && !i.bore[id]
}

// hasStrange reports whether a thread has a cookie of somebody else.
func (i *isolation) hasStrange(tid int) bool {
	id, err := i.core.cookieOf(tid)
	return err == nil && i.strange(id)
}

// foreignScheduler names the loaded sched_ext scheduler; empty: there is none.
func foreignScheduler(sys string) string {
	dir := filepath.Join(sys, "kernel/sched_ext")
	state, err := os.ReadFile(filepath.Join(dir, "state"))
	switch strings.TrimSpace(string(state)) {
	case "", "disabled", "disabling": // one that is going, maybe ours, keeps nobody out for long
		return ""
	}
	name, nameErr := os.ReadFile(filepath.Join(dir, "root/ops"))
	if err != nil || nameErr != nil {
		return "" // there is no sched_ext, or it ended this moment
	}
	return strings.TrimSpace(string(name))
}
