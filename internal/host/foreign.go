package host

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"time"

	"tenon.sh/tenon/internal/node"
)

// foreign is what others do with the means of the ladder.
type foreign struct {
	at      time.Time
	name    string // of a scheduler
	turn    lap
	cookies map[node.WorkloadID]int // threads that have one, by workload
}

// lookForOthers looks who else uses sched_ext and core scheduling: seldom,
// since both are set up once. Of each process the first thread stands for all.
// Only the loop of snapshots does so, hence nothing waits for it: i.mu is held
// for what others see alone.
func (h *Host) lookForOthers(s *node.Snapshot) {
	i := &h.isolation
	i.mu.Lock()
	f := &i.foreign
	loaded, cookies := i.scheduler.loaded, i.cookies
	again := f.at.IsZero() || s.At.Sub(f.at) >= verifyWithin || s.At.Before(f.at)
	s.Isolation.Foreign = f.name
	due := map[node.WorkloadID]bool{}
	for n := range f.turn.due(s.At, len(s.Workloads), glanceWithin) {
		due[s.Workloads[n].ID] = true
	}
	known := maps.Clone(f.cookies)
	i.mu.Unlock()

	if again {
		s.Isolation.Foreign = ""
		if loaded == nil && s.Can.Can(node.MechSchedExt) {
			s.Isolation.Foreign = foreignScheduler(h.fs.Sys)
		}
	}
	found := make(map[node.WorkloadID]int, len(known))
	for _, w := range s.Workloads {
		n, is := known[w.ID]
		if !s.Can.Can(node.MechCoreSched) || w.Class == node.BE {
			continue
		}
		if !is || due[w.ID] {
			n = h.foreignCookies(w.Cgroup, cookies)
		}
		found[w.ID] = n
		s.Isolation.Cookies += n
	}

	i.mu.Lock()
	defer i.mu.Unlock()
	f.cookies = found
	if again {
		f.at, f.name = s.At, s.Isolation.Foreign
	}
}

// foreignCookies counts the processes in and below a cgroup that have another
// cookie than ours (nil: there is none).
func (h *Host) foreignCookies(p node.CgroupPath, ours coreCookie) (n int) {
	h.everyoneIn(p, func(pid int) {
		id, err := h.isolation.core.cookieOf(pid)
		if err == nil && id != 0 && (ours == nil || id != ours.ID()) {
			n++
		}
	})
	return n
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
