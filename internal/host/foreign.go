package host

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"time"

	"tenon.sh/tenon/internal/node"
	"tenon.sh/tenon/internal/task"
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
func (h *Host) lookForOthers(s *node.Snapshot) {
	i := &h.isolation
	i.mu.Lock()
	defer i.mu.Unlock()
	f := &i.foreign
	if passed := s.At.Sub(f.at); f.at.IsZero() || passed >= verifyWithin || passed < 0 {
		f.at, f.name = s.At, ""
		if i.scheduler.loaded == nil && s.Can.Can(node.MechSchedExt) {
			f.name = foreignScheduler(h.fs.Sys)
		}
	}
	s.Isolation.Foreign = f.name
	if !s.Can.Can(node.MechCoreSched) {
		return
	}
	var id uint64
	if i.cookies != nil {
		id = i.cookies.ID()
	}
	here := make(map[node.WorkloadID]bool, len(s.Workloads))
	look := func(w node.Workload) {
		n := 0
		h.everyoneIn(w.Cgroup, func(pid int) {
			if cookie, err := task.CoreCookie(pid); err == nil && cookie != 0 && cookie != id {
				n++
			}
		})
		f.cookies[w.ID] = n
	}
	for _, w := range s.Workloads {
		here[w.ID] = true
		if _, known := f.cookies[w.ID]; !known && w.Class != node.BE {
			look(w)
		}
	}
	maps.DeleteFunc(f.cookies, func(w node.WorkloadID, _ int) bool { return !here[w] })
	for n := range f.turn.due(s.At, len(s.Workloads), glanceWithin) {
		if w := s.Workloads[n]; w.Class != node.BE {
			look(w)
		}
	}
	for _, n := range f.cookies {
		s.Isolation.Cookies += n
	}
}

// foreignScheduler names the loaded sched_ext scheduler; empty: there is none.
func foreignScheduler(sys string) string {
	dir := filepath.Join(sys, "kernel/sched_ext")
	if state, err := os.ReadFile(filepath.Join(dir, "state")); err != nil || strings.TrimSpace(string(state)) == "disabled" {
		return ""
	}
	name, err := os.ReadFile(filepath.Join(dir, "root/ops"))
	if err != nil {
		return "" // it ended this moment
	}
	return strings.TrimSpace(string(name))
}
