package overcommit

import (
	"fmt"
	"testing"
	"time"

	"tenon.sh/tenon/internal/decide/facts"
	"tenon.sh/tenon/internal/model/node"
)

// A service is a snapshot with one service, and the demand that its use makes.
type service struct {
	config Config
	demand demand
	used   time.Duration
}

// use lets time pass, in which the service uses some CPUs.
func (s *service) use(every time.Duration, cpus int) {
	s.used += every * time.Duration(cpus)
	w := node.Workload{ID: "web", Class: node.LS, Usage: node.Usage{CPU: node.Some(s.used)}}
	s.demand, _ = s.demand.observe(s.config, facts.NodeCPUs{}, every, node.Snapshot{Workloads: []node.Workload{w}})
}

// means returns the mean use in the long and in the short window.
func (s *service) means() (long, short int64) {
	u, d := s.demand.Work[0].CPU, s.demand
	return mean(u.Long, d.Long, u.Seen), mean(u.Short, d.Short, u.Seen)
}

// TestAPauseIsForgotten checks a pause that is longer than the window.
// Afterwards only the use since its end must count.
func TestAPauseIsForgotten(t *testing.T) {
	s := service{config: Config{Window: 5 * time.Minute}}
	for range 100 {
		s.use(time.Second, 8)
	}
	s.use(10*time.Minute, 1)
	if long, short := s.means(); long != 1000 || short != 1000 {
		t.Errorf("the means are %dm and %dm, want 1000m: of the last ten minutes alone", long, short)
	}
	for range 6 {
		s.use(4*time.Second, 2)
	}
	if s.demand.Short != (parts{4000}) {
		t.Errorf("with a sample every 4 s the last 5 s are %v ms, want the last sample", s.demand.Short)
	}
}

// TestTheMeanIsOverTheTimeThatWasSeen checks that a window that is older than a
// service does not lower its mean.
func TestTheMeanIsOverTheTimeThatWasSeen(t *testing.T) {
	if got := mean(parts{36_000}, parts{60_000, 60_000, 60_000}, 12_000); got != 3000 {
		t.Errorf("a service that used 3 CPUs in its 12 s counts as %dm", got)
	}
}

// TestThePastIsBounded starts and ends a thousand workloads each minute. Their
// histories must not fill the memory, and must not displace the histories of
// workloads that stay.
func TestThePastIsBounded(t *testing.T) {
	c := Config{Enable: true, Window: 5 * time.Minute, Peak: PeakPrediction{Enable: true, ColdStart: time.Hour}}
	var st State
	minutes := []int{0, 0, 700, 700, 700, 1500}
	for minute, jobs := range minutes {
		var s node.Snapshot
		for i := range jobs + 1 {
			id := node.WorkloadID(fmt.Sprintf("job-%d-%d", minute, i))
			if i == jobs {
				id = "web"
			}
			s.Workloads = append(s.Workloads, node.Workload{ID: id, Class: node.LS, Usage: node.Usage{CPU: node.Some(time.Duration(minute) * 30 * time.Second)}})
		}
		st = st.Observe(c, facts.NodeCPUs{}, time.Minute, s)
	}
	past := st.Demand.Peaks.Past
	if len(past) > maxPeaks || past["web"].Watched < 4*time.Minute {
		t.Errorf("%d workloads are remembered, web for %v", len(past), past["web"].Watched)
	}
}
