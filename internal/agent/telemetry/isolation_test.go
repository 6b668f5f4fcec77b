package telemetry

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"tenon.sh/tenon/internal/decide/tick"
	"tenon.sh/tenon/internal/model/node"
)

// isolatedNode returns the state of a node on which sched_ext has just failed
// for the third time. Each counter of the scheduler has a different value.
func isolatedNode() (node.Selection, node.IsolationStatus) {
	l := node.Selection{Mechanism: node.MechanismIdle, ByHand: true, Mechanisms: []node.MechanismStatus{
		{Mechanism: node.MechanismVendor, Can: node.No},
		{Mechanism: node.MechanismSchedExt, Can: node.Yes, Failures: 3, Down: true},
		{Mechanism: node.MechanismCoreSched, Can: node.No},
		{Mechanism: node.MechanismIdle, Can: node.Yes},
	}}
	s := &node.SchedulerStatus{
		State: "disabled", Run: map[node.SchedulerClass]time.Duration{node.SchedulerLSX: 3 * time.Second, node.SchedulerBE: 1500 * time.Millisecond},
		ExpelIdle: 2 * time.Second, HoldIdle: 250 * time.Millisecond, ExpelDelay: []uint64{1, 0, 2, 4}, OldestWait: time.Second / 2,
		Queues: []node.SchedulerQueue{{Waiting: 1, Urgent: 2, Pinned: 3}, {Waiting: 10}}, Parked: 7,
	}
	counts := reflect.ValueOf(&s.SchedulerCounts).Elem()
	for i := range counts.NumField() {
		counts.Field(i).SetUint(uint64(100 + i))
	}
	return l, node.IsolationStatus{
		Loads: 3, Exits: map[node.ExitKind]uint64{node.ExitStall: 2, node.ExitSysrq: 1}, Strays: 5, Converted: 4, Realtime: 1, OwnSlices: 6, Demotions: 9, Demoted: 2, Refused: "the table is full", Scheduler: s,
	}
}

func TestTheMeansOfIsolationAndItsFallsAreShown(t *testing.T) {
	m := New("test")
	turn := tick.Tick{Snapshot: node.Snapshot{At: time.Unix(5, 0)}}
	turn.Selection, turn.Isolation = isolatedNode()
	m.Observe(turn, nil, time.Second)
	_, text := scrape(t, m, "/metrics")
	for _, line := range []string{
		`tenon_isolation_mechanism{mechanism="cpu.idle"} 1`, `tenon_isolation_mechanism{mechanism="sched_ext"} 0`,
		`tenon_isolation_mechanism_possible{mechanism="sched_ext"} 1`, `tenon_isolation_mechanism_possible{mechanism="core_sched"} 0`,
		`tenon_isolation_mechanism_failures{mechanism="sched_ext"} 3`, `tenon_isolation_mechanism_down{mechanism="sched_ext"} 1`, `tenon_isolation_mechanism_down{mechanism="cpu.idle"} 0`,
		"tenon_isolation_pinned_by_hand 1", "tenon_isolation_strays_total 5", "tenon_isolation_strays_converted_total 4",
		"tenon_isolation_demotions_total 9", "tenon_isolation_demoted_threads 2", "tenon_isolation_realtime_threads 1", "tenon_isolation_own_slice_threads 6",
		"tenon_scheduler_loads_total 3", `tenon_scheduler_exits_total{kind="stall"} 2`, `tenon_scheduler_exits_total{kind="error"} 0`, "tenon_scheduler_running 0", "tenon_scheduler_untold 1",
		`tenon_scheduler_run_seconds_total{class="LSX"} 3`, `tenon_scheduler_run_seconds_total{class="BE"} 1.5`, `tenon_scheduler_run_seconds_total{class="NORMAL"} 0`,
		"tenon_scheduler_expel_idle_seconds_total 2", "tenon_scheduler_hold_idle_seconds_total 0.25", "tenon_scheduler_oldest_wait_seconds 0.5",
		`tenon_scheduler_queued_threads{queue="shared"} 11`, `tenon_scheduler_queued_threads{queue="parked"} 7`,
		`tenon_scheduler_expel_delay_seconds_bucket{le="2.56e-07"} 1`, `tenon_scheduler_expel_delay_seconds_bucket{le="1.024e-06"} 3`,
		`tenon_scheduler_expel_delay_seconds_bucket{le="+Inf"} 7`, "tenon_scheduler_expel_delay_seconds_count 7",
	} {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("no line %s", line)
		}
	}
}

// TestEachCountOfTheSchedulerHasAMetricOfItsOwn fails if a count has no metric,
// or if two counts have the same metric.
func TestEachCountOfTheSchedulerHasAMetricOfItsOwn(t *testing.T) {
	m := New("test")
	turn := tick.Tick{Snapshot: node.Snapshot{At: time.Unix(5, 0)}}
	turn.Selection, turn.Isolation = isolatedNode()
	m.Observe(turn, nil, time.Second)
	_, text := scrape(t, m, "/metrics")
	counts := reflect.TypeFor[node.SchedulerCounts]()
	for f := range counts.NumField() {
		kick := strings.HasPrefix(counts.Field(f).Name, "Kicks") // tenon_scheduler_kicks_total
		if strings.Contains(text, fmt.Sprintf("_total %d\n", 100+f)) == kick {
			t.Errorf("%s: has a metric of its own: %v", counts.Field(f).Name, !kick)
		}
	}
}

func TestNothingIsShownOfASchedulerThatWasNeverLoaded(t *testing.T) {
	m := New("test")
	turn := tick.Tick{Snapshot: node.Snapshot{At: time.Unix(5, 0)}}
	m.Observe(turn, nil, time.Second)
	_, text := scrape(t, m, "/metrics")
	if strings.Contains(text, "tenon_scheduler_run_") || strings.Contains(text, "tenon_isolation_mechanism{") || !strings.Contains(text, "tenon_scheduler_running 0\n") || !strings.Contains(text, "tenon_scheduler_untold 0\n") {
		t.Error(text)
	}
}
