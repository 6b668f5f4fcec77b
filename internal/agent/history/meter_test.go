package history

import (
	"slices"
	"testing"
	"time"

	"tenon.sh/tenon/internal/decide/promise"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// snapshotAt returns a snapshot at a second: the service uses 1.5 CPUs, and 3 CPUs from
// second 20 to 30, and is throttled for a tenth of the time.
func snapshotAt(second int) *node.Snapshot {
	passed := time.Duration(second) * time.Second
	used := passed*3/2 + max(min(passed-20*time.Second, 10*time.Second), 0)*3/2
	return &node.Snapshot{
		At:    time.Unix(5000, 0).Add(passed),
		Usage: node.Usage{CPU: node.Some(2 * used), Memory: node.Some(unit.Bytes(second) << 20), Pressure: node.Pressure{IO: node.Stall{Some: node.Some(passed / 100)}}},
		Workloads: []node.Workload{{
			ID: "web", Class: node.LS, CPURequest: node.Some(unit.MilliCPU(2000)),
			Usage: node.Usage{
				CPU: node.Some(used), Throttled: node.Some(passed / 10), WorkingSet: node.Some(unit.Bytes(300 << 20)),
				Delay: node.RunQueueDelay{Sum: node.Some(passed / 50), Counts: []uint64{uint64(second), 0, uint64(99 * second), 0}},
			},
		}},
		Waits: []node.Wait{{Waiter: "web", Runner: "batch", Time: passed / 60}, {Waiter: "web", Runner: "other", Time: passed / 60_000}},
	}
}

func TestAMinuteIsWhatTheCountersSay(t *testing.T) {
	var m Meter
	start := time.Unix(1_700_006_400, 0)
	var got []Minute
	for second := 0; second < 200; second++ {
		room := promise.Room{CPU: node.Some(unit.MilliCPU(4000))}
		if second == 17 {
			room.CPU = node.Some(unit.MilliCPU(900))
		}
		if done, complete := m.Observe(start.Add(time.Duration(second)*time.Second), snapshotAt(second), room); complete {
			got = append(got, done)
		}
	}
	if len(got) != 3 || got[0].At != start.Unix()/60 || got[2].At != got[0].At+2 {
		t.Fatalf("%+v", got)
	}
	for _, c := range []struct {
		minute int
		kind   Kind
		column string
		want   int64
	}{
		{0, Work, "cpu_mcpu", 1750}, {1, Work, "cpu_mcpu", 1500}, {0, Work, "cpu_max_mcpu", 3000}, {1, Work, "cpu_max_mcpu", 1500},
		{0, Work, "request_mcpu", 2000}, {0, Work, "limit_mcpu", Absent}, {0, Work, "throttled_ms", 6000}, {0, Work, "wait_ms", 1200},
		{0, Work, "wait_p99_bucket", 2}, {0, Work, "working_set_mib", 300}, {0, Work, "refaults", Absent},
		{0, Node, "cpu_mcpu", 3500}, {0, Node, "memory_mib", 60}, {1, Node, "memory_mib", 120}, {0, Node, "io_some_ms", 600},
		{0, Node, "room_cpu_mcpu", 900}, {1, Node, "room_cpu_mcpu", 4000}, {0, Node, "room_memory_mib", Absent}, {0, Node, "steal_mcpu", Absent},
		{0, Pair, "wait_ms", 1000},
	} {
		rows := got[c.minute].Rows[c.kind]
		if len(rows) != 1 {
			t.Fatalf("kind %d: %+v", c.kind, rows)
		}
		if v := rows[0].Values[Column(c.kind, c.column)]; v != c.want {
			t.Errorf("minute %d, kind %d, %s is %d, want %d", c.minute, c.kind, c.column, v, c.want)
		}
	}
	if name := got[0].Rows[Pair][0].Name; name != PairName("web", "batch") {
		t.Errorf("the pair is %q", name)
	}
	if s, err := Open(t.TempDir(), 1<<20); err != nil || s.Append(got[0]) != nil {
		t.Error("the minute does not fit into the store")
	}
}

// TestAMinuteThatWasNotSeenIsAHole: the machine sleeps, the clock is set, or the
// first tick of a minute is missing.
func TestAMinuteThatWasNotSeenIsAHole(t *testing.T) {
	start := time.Unix(1_700_006_400, 0)
	for _, c := range []struct {
		name         string
		passed, wall time.Duration
		want         bool
	}{
		{"a minute", 60 * time.Second, 60 * time.Second, true},
		{"the clock is set back", 60 * time.Second, -60 * time.Second, false},
		{"the clock is set on", 10 * time.Second, 60 * time.Second, false},
		{"two minutes without a tick", 120 * time.Second, 120 * time.Second, false},
	} {
		var m Meter
		m.Observe(start, snapshotAt(0), promise.Room{})
		_, complete := m.Observe(start.Add(c.wall), snapshotAt(int(c.passed/time.Second)), promise.Room{})
		if complete != c.want {
			t.Errorf("%s: %v, want %v", c.name, complete, c.want)
		}
	}
}

func TestAWorkloadThatCameWithinTheMinuteHasNoRow(t *testing.T) {
	var m Meter
	start := time.Unix(1_700_006_400, 0)
	without := snapshotAt(0)
	without.Workloads = nil
	m.Observe(start, without, promise.Room{})
	done, complete := m.Observe(start.Add(time.Minute), snapshotAt(60), promise.Room{})
	if !complete || len(done.Rows[Work]) != 0 || len(done.Rows[Node]) != 1 {
		t.Errorf("%+v, %v", done, complete)
	}
}

// TestAPairHasTheWaitOfItsMinuteOnly: a snapshot has the totals of some runners, and
// those of the others in one sum for each class.
func TestAPairHasTheWaitOfItsMinuteOnly(t *testing.T) {
	rest := node.RestOf(node.BE)
	for name, c := range map[string]struct {
		first, now, want map[node.WorkloadID]time.Duration
		ended            bool // the runner a has ended
	}{
		"a runner becomes named": {
			map[node.WorkloadID]time.Duration{"b": 2 * time.Hour, rest: time.Hour},
			map[node.WorkloadID]time.Duration{"a": time.Hour, "b": 2*time.Hour + time.Second, rest: time.Minute},
			map[node.WorkloadID]time.Duration{"b": time.Second}, false,
		},
		"a runner is no longer named": {
			map[node.WorkloadID]time.Duration{"a": time.Hour, "b": time.Hour, rest: time.Minute},
			map[node.WorkloadID]time.Duration{"b": time.Hour, rest: time.Hour + time.Minute + 3*time.Second},
			map[node.WorkloadID]time.Duration{rest: 3 * time.Second}, false,
		},
		"one takes the name of another": {
			map[node.WorkloadID]time.Duration{"a": 2 * time.Hour, rest: time.Hour},
			map[node.WorkloadID]time.Duration{"b": time.Hour, rest: 2*time.Hour + time.Second},
			map[node.WorkloadID]time.Duration{}, false,
		},
		"a pod ends, and there was no rest": {
			map[node.WorkloadID]time.Duration{"a": time.Hour},
			map[node.WorkloadID]time.Duration{rest: time.Hour + 4*time.Second},
			map[node.WorkloadID]time.Duration{rest: 4 * time.Second}, true,
		},
		"a pod begins anew with the same name": {
			map[node.WorkloadID]time.Duration{"a": time.Hour, rest: time.Minute},
			map[node.WorkloadID]time.Duration{"a": 2 * time.Second, rest: time.Hour + time.Minute + time.Second},
			map[node.WorkloadID]time.Duration{"a": 2 * time.Second, rest: time.Second}, false,
		},
		"the first wait for a runner": {
			map[node.WorkloadID]time.Duration{"b": time.Hour},
			map[node.WorkloadID]time.Duration{"a": time.Second, "b": time.Hour},
			map[node.WorkloadID]time.Duration{"a": time.Second}, false,
		},
		"a runner that came within the minute": {
			map[node.WorkloadID]time.Duration{rest: time.Hour},
			map[node.WorkloadID]time.Duration{"new": time.Second, rest: time.Hour},
			map[node.WorkloadID]time.Duration{"new": time.Second}, false,
		},
		"the counters of the waiter begin anew": {
			map[node.WorkloadID]time.Duration{"a": time.Hour, rest: time.Hour, node.RunnerKernel: time.Hour},
			map[node.WorkloadID]time.Duration{"a": time.Second, rest: time.Second, node.RunnerKernel: time.Second},
			map[node.WorkloadID]time.Duration{"a": time.Second}, false,
		},
	} {
		var m Meter
		start := time.Unix(1_700_006_400, 0)
		snapshot := func(second int, waits map[node.WorkloadID]time.Duration, without bool) *node.Snapshot {
			s := snapshotAt(second)
			s.Waits = nil
			for _, id := range []node.WorkloadID{"a", "b"} {
				if id != "a" || !without {
					s.Workloads = append(s.Workloads, node.Workload{ID: id, Class: node.BE})
				}
			}
			for runner, total := range waits {
				s.Waits = append(s.Waits, node.Wait{Waiter: "web", Runner: runner, Time: total})
			}
			return s
		}
		m.Observe(start, snapshot(0, c.first, false), promise.Room{})
		done, complete := m.Observe(start.Add(time.Minute), snapshot(60, c.now, c.ended), promise.Room{})
		if !complete || len(done.Rows[Pair]) != len(c.want) {
			t.Errorf("%s: %+v, want %v", name, done.Rows[Pair], c.want)
			continue
		}
		for runner, want := range c.want {
			i := slices.IndexFunc(done.Rows[Pair], func(r Row) bool { return r.Name == PairName("web", string(runner)) })
			if i < 0 || done.Rows[Pair][i].Values[0] != want.Milliseconds() {
				t.Errorf("%s: %+v, want %v", name, done.Rows[Pair], c.want)
			}
		}
	}
}

// TestEachColumnIsSet: a column that no snapshot can set has no place in the files.
func TestEachColumnIsSet(t *testing.T) {
	var m Meter
	start := time.Unix(1_700_006_400, 0)
	whole := func(second int) *node.Snapshot {
		s := snapshotAt(second)
		passed := node.Some(time.Duration(second) * time.Second)
		stall := node.Stall{Some: passed, Full: passed}
		s.Usage.Steal, s.Usage.WorkingSet, s.Usage.Pressure = passed, node.Some(unit.Bytes(1<<30)), node.Pressure{CPU: stall, Memory: stall, IO: stall}
		w := &s.Workloads[0]
		w.CPULimit, w.Usage.Refaults, w.Usage.Pressure = node.Some(unit.MilliCPU(4000)), node.Some(int64(second)), s.Usage.Pressure
		return s
	}
	room := promise.Room{CPU: node.Some(unit.MilliCPU(4000)), Memory: node.Some(unit.Bytes(8 << 30))}
	for second := range 60 {
		m.Observe(start.Add(time.Duration(second)*time.Second), whole(second), room)
	}
	done, complete := m.Observe(start.Add(time.Minute), whole(60), room)
	if !complete {
		t.Fatal("the minute is not complete")
	}
	for kind, columns := range Columns {
		for c, column := range columns {
			if len(done.Rows[kind]) == 0 || done.Rows[kind][0].Values[c] == Absent {
				t.Errorf("nothing sets %s of kind %d", column, kind)
			}
		}
	}
}
