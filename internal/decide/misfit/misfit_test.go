package misfit

import (
	"strings"
	"testing"
	"time"

	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// A load is a workload with a limit on a node of 8 CPUs. It says how much its
// counters grow in a second.
type load struct {
	limit, quota unit.MilliCPU // quota: the present quota; 0: the quota of the limit
	throttled    int64         // of 10 periods
	burst        int64         // number of seconds at the beginning in which all periods are throttled
	runs         int64         // number of seconds after which it sleeps; 0: never
	runnable     int           // 0: not counted
	cpus         unit.CPUSet   // empty: all
	class        node.Class
}

// observeFor observes the load for a number of seconds. The seconds between two
// snapshots are given (every).
func (l load) observeFor(seconds, every int) (State, map[node.WorkloadID]*Misfit) {
	var st State
	quota := l.quota
	if quota == 0 {
		quota = l.limit
	}
	s := node.Snapshot{Knobs: node.Knobs{Now: map[node.Knob]node.Value{
		{Cgroup: "a", File: node.FileCPUMax}: node.Limit(quota), {Cgroup: "a", File: node.FileCPUs}: node.CPUs{Set: l.cpus},
	}}}
	for c := range unit.CPU(8) {
		s.Topology.CPUs = append(s.Topology.CPUs, node.LogicalCPU{ID: c, Core: node.CoreID(c)})
	}
	for now := every; now <= seconds; now += every {
		ran := int64(now)
		if l.runs > 0 {
			ran = min(ran, l.runs)
		}
		u := node.Usage{Periods: node.Some(10 * ran), ThrottledPeriods: node.Some(l.throttled*ran + (10-l.throttled)*min(ran, l.burst))}
		if l.runnable > 0 {
			u.Threads, u.Runnable = node.Some(2*l.runnable), node.Some(l.runnable)
		}
		s.At = time.Unix(int64(now), 0)
		s.Workloads = []node.Workload{{ID: "a", Class: l.class, Cgroup: "a", CPULimit: node.Some(l.limit), Usage: u}}
		st = st.Observe(Config{}, s)
	}
	return st, st.Misfits()
}

func TestAMisfitIsNamedWithinAMinute(t *testing.T) {
	// With 1, each tick has new counters. With 10, counters are up to ten
	// seconds old.
	for _, every := range []int{1, 10} {
		l := load{limit: 2000, throttled: 9, runnable: 8, class: node.BE}
		if _, found := l.observeFor(20, every); len(found) > 0 {
			t.Errorf("after 20 s: %v", found)
		}
		_, found := l.observeFor(50, every)
		if m, is := found["a"]; !is || m.Kind != Threads || m.Throttled != 90 || m.Limit != 2000 || m.CPUs != 8 {
			t.Errorf("read every %d s: %+v", every, found)
		}
	}
}

func TestTheKindFollowsTheThreads(t *testing.T) {
	for name, c := range map[string]struct {
		load
		want Kind // empty: no misfit
	}{
		"many threads":                        {load{limit: 1000, throttled: 10, runnable: 4}, Threads},
		"one thread":                          {load{limit: 500, throttled: 10, runnable: 1}, Limit},
		"threads are not counted":             {load{limit: 1000, throttled: 10}, Limit},
		"it has no more CPUs than its limit":  {load{limit: 2000, throttled: 10, runnable: 8, cpus: unit.CPUSetOf(0, 1)}, Limit},
		"a third of the periods":              {load{limit: 1000, throttled: 3, runnable: 8}, ""},
		"a third of them after a burst":       {load{limit: 1000, throttled: 3, burst: 5, runnable: 8}, ""},
		"a burst, and then it sleeps":         {load{limit: 1000, throttled: 10, runs: 5, runnable: 8}, ""},
		"Tenon allows less than the owner":    {load{limit: 2000, quota: 500, throttled: 10, runnable: 8}, ""},
		"Tenon lends more than the limit":     {load{limit: 1000, quota: 2000, throttled: 10, runnable: 8}, Threads},
		"as many runnable threads as allowed": {load{limit: 3500, throttled: 10, runnable: 4}, Limit},
	} {
		_, found := c.observeFor(60, 1)
		var kind Kind
		if m := found["a"]; m != nil {
			kind = m.Kind
		}
		if kind != c.want {
			t.Errorf("%s: %q, want %q", name, kind, c.want)
		}
	}
}

// TestALentQuotaIsNotTheLimit checks which limit Tenon reports while CPU burst
// lends quota. It must be the limit that the owner wrote and can change.
func TestALentQuotaIsNotTheLimit(t *testing.T) {
	_, found := load{limit: 1000, quota: 3000, throttled: 10, runnable: 8, class: node.LS}.observeFor(60, 1)
	m := found["a"]
	if m == nil || m.Limit != 1000 {
		t.Fatalf("%+v", m)
	}
	if !strings.Contains(m.Text, "share a limit of 1 CPU on") || !strings.Contains(m.Write, "start it with 1 thread;") || !strings.Contains(m.Write, "a request of 1 CPU") {
		t.Errorf("it says %q and %q", m.Text, m.Write)
	}
}

// TestABoundOfAPodIsNotTheLimitOfItsContainers bounds a pod of which only one container
// has a limit: a service waits for it. The bound throttles the pod, and not the limit.
func TestABoundOfAPodIsNotTheLimitOfItsContainers(t *testing.T) {
	pod, main := node.Knob{Cgroup: "a", File: node.FileCPUMax}, node.Knob{Cgroup: "a/main", File: node.FileCPUMax}
	free := node.CPUMax{Quota: node.NoQuota, Period: node.DefaultPeriod}
	for now, want := range map[node.CPUMax]int{node.LimitIn(1000, 10*time.Millisecond): 0, free: 1} {
		var st State
		s := node.Snapshot{Knobs: node.Knobs{Now: map[node.Knob]node.Value{pod: now, main: node.Limit(4000)}, Before: map[node.Knob]node.Value{pod: free}}}
		for second := range int64(60) {
			u := node.Usage{Periods: node.Some(10 * second), ThrottledPeriods: node.Some(10 * second)}
			s.At = time.Unix(second, 0)
			s.Workloads = []node.Workload{{ID: "a", Class: node.BE, Cgroup: "a", Usage: u, Containers: []node.Container{{Name: "main", Cgroup: "a/main", CPULimit: node.Some[unit.MilliCPU](4000)}}}}
			st = st.Observe(Config{}, s)
		}
		if found := st.Misfits(); len(found) != want {
			t.Errorf("with %v: %+v", now, found["a"])
		}
	}
}

func TestAWorkloadWithoutAQuotaIsNotWatched(t *testing.T) {
	st := State(nil).Observe(Config{}, node.Snapshot{At: time.Unix(1, 0), Workloads: []node.Workload{
		{ID: "none", Usage: node.Usage{Periods: node.Some[int64](0), ThrottledPeriods: node.Some[int64](0)}}, {ID: "unknown"},
	}})
	if st != nil || st.Misfits() != nil {
		t.Errorf("%v", st)
	}
}

func TestItSaysWhatToWrite(t *testing.T) {
	for class, want := range map[node.Class]string{
		node.BE: "start it with 2 threads; or set the limit to 8; or set no limit: best-effort work gives way without one",
		node.LS: "start it with 2 threads; or set the limit to 8; or set no limit, and a request of 1.5 CPUs",
	} {
		_, found := load{limit: 1500, throttled: 10, runnable: 12, class: class}.observeFor(60, 1)
		if got := found["a"].Write; got != want {
			t.Errorf("%s: %q, want %q", class, got, want)
		}
		const says = "24 threads, on average 12 runnable, share a limit of 1.5 CPUs on 8 CPUs: they use it up and stand still in 100% of its periods"
		if got := found["a"].Text; got != says {
			t.Errorf("%q, want %q", got, says)
		}
	}
	_, found := load{limit: 1000, throttled: 10, class: node.LS}.observeFor(60, 1)
	if got := found["a"].Write; strings.Contains(got, "thread") || !strings.Contains(got, "a request of 1 CPU") {
		t.Errorf("with unknown threads it says %q", got)
	}
}

func TestARestartedCounterBeginsAnew(t *testing.T) {
	l := load{limit: 1000, throttled: 10, runnable: 4}
	st, _ := l.observeFor(60, 1)
	w := node.Workload{ID: "a", Cgroup: "a", CPULimit: node.Some(l.limit), Usage: node.Usage{Periods: node.Some[int64](3), ThrottledPeriods: node.Some[int64](3)}}
	knobs := node.Knobs{Now: map[node.Knob]node.Value{{Cgroup: "a", File: node.FileCPUMax}: node.Limit(l.limit)}}
	if found := st.Observe(Config{}, node.Snapshot{At: time.Unix(61, 0), Workloads: []node.Workload{w}, Knobs: knobs}).Misfits(); found != nil {
		t.Errorf("another cgroup of the same name is a misfit at once: %v", found)
	}
}
