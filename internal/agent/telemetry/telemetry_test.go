package telemetry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"tenon.sh/tenon/internal/agent/health"
	"tenon.sh/tenon/internal/decide/culprit"
	"tenon.sh/tenon/internal/decide/misfit"
	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/decide/promise"
	"tenon.sh/tenon/internal/decide/prospect"
	"tenon.sh/tenon/internal/decide/reclaim"
	"tenon.sh/tenon/internal/decide/slo"
	"tenon.sh/tenon/internal/decide/suppresscost"
	"tenon.sh/tenon/internal/decide/tick"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/trial"
	"tenon.sh/tenon/internal/model/unit"
)

// tickAt returns a tick with all values known. One of its two steps failed.
func tickAt(second int) tick.Tick {
	used := node.Some(time.Duration(second) * time.Second)
	memory := node.Some[unit.Bytes](1 << 20)
	t := tick.Tick{Sense: 300 * time.Microsecond, Decide: 100 * time.Microsecond, Act: 2 * time.Millisecond}
	t.Snapshot = node.Snapshot{
		At: time.Unix(1700000000+int64(second), 0), MemoryTotal: node.Some[unit.Bytes](8 << 30),
		Topology: node.Topology{CPUs: []node.LogicalCPU{{ID: 0}, {ID: 1}}},
		Usage:    node.Usage{CPU: used, Memory: memory, Steal: used},
		Workloads: []node.Workload{
			{ID: "be.slice/job", Class: node.BE, ContentionRoot: "be.slice", Usage: node.Usage{CPU: used, Memory: memory, Throttled: used}},
			{ID: "web", Class: node.LS, ContentionRoot: "web", Usage: node.Usage{CPU: used, Memory: memory}},
		},
		Knobs: node.Knobs{Before: map[node.Knob]node.Value{{Cgroup: "be.slice", File: node.FileCPUMax}: node.Limit(1)}},
	}
	quota := node.Knob{Cgroup: "be.slice", File: node.FileCPUMax}
	t.Wants = []plan.Want{
		{Intent: plan.Set, Knob: quota, Value: node.Limit(1300), BE: true},
		{Intent: plan.Set, Knob: node.Knob{Cgroup: "be.slice", File: node.FileCPUs}, Value: node.CPUs{Set: unit.CPUSetOf(1)}, BE: true},
		{Intent: plan.Set, Knob: node.Knob{Cgroup: "be.slice/job", File: node.FileCPUMax}, Value: node.Limit(9000), BE: true},
	}
	t.Batch.CPU = node.Amount[unit.MilliCPU]{Policy: "usage", Value: 500, Terms: []node.Term[unit.MilliCPU]{{Name: node.TermCapacity, Amount: 1200}, {Name: "LS", Amount: -700}}}
	t.Batch.Memory = node.Amount[unit.Bytes]{Policy: "usage", Value: 1 << 30, Terms: []node.Term[unit.Bytes]{{Name: node.TermCapacity, Amount: 1 << 30}}, Degraded: "unknown"}
	t.Watermark = suppresscost.Watermark{Percent: 65, Since: time.Unix(1, 0), Counted: time.Hour, Reached: time.Minute, Withheld: time.Second}
	t.Trials = trial.Status{Results: []trial.Result{{
		Candidate: node.MechanismIdle, Finding: trial.Kept, Pairs: 8, Ratio: 0.7, Low: 0.6, High: 0.8,
		Services: []trial.Service{{Name: "web", HourWithout: 3 * time.Second, HourWith: 2 * time.Second}},
	}}}
	t.Begun = t.Snapshot.At.Add(time.Hour) // the machine has slept; in that time the clock of snapshots stops
	t.Events = []tick.Event{{At: t.Begun.Add(-3 * time.Millisecond), Kind: tick.EventDelay, Workload: "web", More: 2}}
	web := &t.Snapshot.Workloads[1]
	web.Usage.Delay = node.RunQueueDelay{Sum: used, Counts: make([]uint64, 29)}
	web.Usage.Delay.Counts[10], web.Usage.Delay.Counts[12], web.Usage.Delay.Counts[13], web.Usage.Delay.Counts[28] = 1, 3, 2, 1
	web.Objective.RunQueueDelay, t.Objectives = node.Some(time.Millisecond), map[node.WorkloadID]slo.Judgement{"web": {
		Verdict: slo.Missed, Cause: slo.ForBE, Requests: slo.RequestJudgement{
			Want: node.RequestObjective{Within: [len(node.Percentiles)]time.Duration{time.Millisecond}}, Tail: node.Some(2 * time.Millisecond), Trouble: node.TroubleSlow,
		},
	}}
	web.Usage.Requests = node.Requests{At: t.Snapshot.At, Counts: []uint64{5}, Unsure: 1}
	t.Single = map[node.WorkloadID]culprit.Bound{"be.slice/job": {May: 1500, Victim: "web"}}
	t.Outlook = &prospect.Outlook{All: prospect.Hour{
		CPU: prospect.Spread[unit.MilliCPU]{Steps: 60, Low: 1500, Mean: 2500}, Memory: prospect.Spread[unit.Bytes]{Steps: 60, Low: 1 << 20, Mean: 1 << 21},
	}}
	t.Promises = []promise.Promise{{
		Hours: 1, Percent: 80, CPU: promise.Amount[unit.MilliCPU]{Code: promise.Unmeasured},
		Memory: promise.Amount[unit.Bytes]{Code: promise.Known, Value: 1 << 20},
	}, {
		Hours: 6, Percent: 90,
		CPU:    promise.Amount[unit.MilliCPU]{Code: promise.Known, Value: 400, Judged: 10, Kept: 9},
		Memory: promise.Amount[unit.Bytes]{Code: promise.TooFew, Windows: 3, Needed: 72},
	}}
	t.Reclaim.Work = map[node.WorkloadID]*reclaim.Work{"be.slice/job": {Step: 2 << 20}}
	t.Snapshot.Workloads[0].Usage.Reclaim, t.Snapshot.Usage.Free = node.Reclaim{Asked: 3 << 20, Got: 1 << 20}, memory
	t.Misfits = map[node.WorkloadID]*misfit.Misfit{"web": {Kind: misfit.Threads}}
	web.Usage.Refaults, web.Usage.WorkingSet, web.Usage.Written, web.Usage.Read = node.Some[int64](7), memory, memory, memory
	t.Snapshot.Usage.WorkingSet, t.Snapshot.Usage.Read, t.Snapshot.Usage.Written = memory, memory, memory
	web.Usage.Periods, web.Usage.ThrottledPeriods = node.Some[int64](10), node.Some[int64](4)
	web.Usage.Pressure.Memory.Some, t.Snapshot.Usage.Pressure.IO.Full, t.Snapshot.Usage.Refaults = used, used, node.Some[int64](9)
	t.Snapshot.Waits = []node.Wait{
		{Waiter: "web", Runner: "be.slice/job", Time: 3 * time.Second}, {Waiter: "web", Runner: node.RestOf(node.BE), Time: 2 * time.Second},
		{Waiter: "web", Runner: node.RunnerKernel, Time: time.Second}, {Waiter: "gone", Runner: "web", Time: time.Second},
	}
	t.Snapshot.Cache = map[node.Class]node.CacheUse{node.BE: {Occupancy: memory, Traffic: memory}}
	t.Selection, t.Isolation = isolatedNode()
	t.Done = []tick.Outcome{
		{Step: plan.Step{Knob: quota, To: node.Limit(1300), Owner: plan.OwnerSuppress}},
		{Step: plan.Step{Knob: quota, To: node.Limit(1300), Owner: plan.OwnerLimit}, Err: errors.New("refused")},
	}
	return t
}

func scrape(t *testing.T, m *Metrics, path string) (int, string) {
	t.Helper()
	r := httptest.NewRecorder()
	m.Handler().ServeHTTP(r, httptest.NewRequest(http.MethodGet, path, nil))
	return r.Code, r.Body.String()
}

func TestMetricsAreReadFromTheTicks(t *testing.T) {
	m := New("v1")
	m.Observe(tickAt(1), errors.New("refused"), time.Second)
	m.Observe(tickAt(3), nil, time.Second)
	m.Observe(tick.Tick{}, errors.New("no topology"), time.Second)
	code, text := scrape(t, m, "/metrics")
	if code != http.StatusOK {
		t.Fatalf("%d %s", code, text)
	}
	for _, want := range []string{
		`tenon_build_info{version="v1"} 1`,
		`tenon_ticks_total{outcome="ok"} 1`,
		`tenon_ticks_total{outcome="failed"} 1`,
		`tenon_ticks_total{outcome="blind"} 1`,
		`tenon_tick_duration_seconds_count{part="sense"} 2`,
		`tenon_steps_total{outcome="applied",policy="suppress"} 2`,
		`tenon_steps_total{outcome="failed",policy="limit"} 2`,
		`tenon_class_cpu_seconds_total{class="BE"} 2`,
		`tenon_class_cpu_seconds_total{class="LSE"} 0`,
		`tenon_class_memory_bytes{class="LS"} 1.048576e+06`,
		`tenon_workloads{class="BE"} 1`,
		`tenon_workloads{class="LSR"} 0`,
		`tenon_be_cpu_limit_cores{knob="cpu.max"} 1.3`,
		`tenon_be_cpu_limit_cores{knob="cpuset.cpus"} 1`,
		`tenon_knobs_held 1`,
		`tenon_batch_cpu_cores 0.5`,
		`tenon_batch_cpu_term_cores{term="capacity"} 1.2`,
		`tenon_batch_cpu_term_cores{term="LS"} -0.7`,
		`tenon_batch_memory_bytes 1.073741824e+09`,
		`tenon_batch_memory_term_bytes{term="capacity"} 1.073741824e+09`,
		`tenon_batch_degraded{resource="cpu"} 0`,
		`tenon_promised_cpu_cores{hours="6",percent="90"} 0.4`,
		`tenon_promised_memory_bytes{hours="1",percent="80"} 1.048576e+06`,
		`tenon_outlook_cpu_cores{quantile="0.05"} 1.5`,
		`tenon_outlook_mean_cpu_cores 2.5`,
		`tenon_promises_kept{hours="6",percent="90",resource="cpu"} 9`,
		`tenon_promises_judged{hours="6",percent="90",resource="memory"} 0`,
		`tenon_batch_degraded{resource="memory"} 1`,
		`tenon_knobs_failing 1`,
		`tenon_node_cpus 2`,
		`tenon_node_cpu_seconds_total 3`,
		`tenon_last_tick_timestamp_seconds 1.700003603e+09`,
		`tenon_workload_throttled_seconds_total{class="BE",namespace="",pod="",workload="be.slice/job"} 3`,
		`tenon_workloads_omitted 0`,
		`tenon_events_total{kind="delay"} 6`,
		`tenon_events_total{kind="config"} 0`,
		`tenon_reaction_seconds_count{kind="delay"} 2`,
		`tenon_reaction_seconds_bucket{kind="delay",le="0.008"} 2`,
		`tenon_reaction_seconds_bucket{kind="delay",le="0.004"} 0`,
		`tenon_run_queue_delay_seconds_bucket{class="LS",namespace="",pod="",workload="web",le="0.001048576"} 4`,
		`tenon_run_queue_delay_seconds_bucket{class="LS",namespace="",pod="",workload="web",le="0.002097152"} 6`,
		`tenon_run_queue_delay_seconds_bucket{class="LS",namespace="",pod="",workload="web",le="+Inf"} 7`,
		`tenon_run_queue_delay_seconds_sum{class="LS",namespace="",pod="",workload="web"} 3`,
		`tenon_run_queue_wait_seconds_total{namespace="",pod="",runner_class="BE",waiter="web"} 5`,
		`tenon_objective_missed{class="LS",namespace="",pod="",workload="web"} 1`,
		`tenon_workload_bound_cores{class="BE",namespace="",pod="",victim="web",workload="be.slice/job"} 1.5`,
		`tenon_objective_verdict{cause="best-effort",class="LS",namespace="",pod="",verdict="missed",workload="web"} 1`,
		`tenon_cpu_misfit{class="LS",kind="threads",namespace="",pod="",workload="web"} 1`,
		`tenon_cpu_misfits{kind="threads"} 1`,
		`tenon_cpu_misfits{kind="limit"} 0`,
		`tenon_node_pressure_seconds_total{resource="io",tasks="all"} 3`,
		`tenon_node_refaults_total 9`,
		`tenon_node_memory_free_bytes 1.048576e+06`,
		`tenon_workload_reclaim_bytes_total{amount="asked",class="BE",namespace="",pod="",workload="be.slice/job"} 3.145728e+06`,
		`tenon_workload_reclaim_bytes_total{amount="got",class="BE",namespace="",pod="",workload="be.slice/job"} 1.048576e+06`,
		`tenon_workload_reclaim_step_bytes{class="BE",namespace="",pod="",workload="be.slice/job"} 2.097152e+06`,
		`tenon_workload_pressure_seconds_total{class="LS",namespace="",pod="",resource="memory",workload="web"} 3`,
		`tenon_workload_working_set_bytes{class="LS",namespace="",pod="",workload="web"} 1.048576e+06`,
		`tenon_workload_refaults_total{class="LS",namespace="",pod="",workload="web"} 7`,
		`tenon_workload_written_bytes_total{class="LS",namespace="",pod="",workload="web"} 1.048576e+06`,
		`tenon_workload_quota_periods_total{class="LS",namespace="",outcome="throttled",pod="",workload="web"} 4`,
		`tenon_workload_quota_periods_total{class="LS",namespace="",outcome="free",pod="",workload="web"} 6`,
		`tenon_run_queue_wait_seconds_total{namespace="",pod="",runner_class="kernel",waiter="web"} 1`,
	} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("the metrics lack %q", want)
		}
	}
	if strings.Contains(text, `throttled_seconds_total{class="LS"`) || strings.Contains(text, `tenon_objective_missed{class="BE"`) ||
		strings.Contains(text, `quota_periods_total{class="BE"`) || strings.Contains(text, `reclaim_bytes_total{amount="got",class="LS"`) {
		t.Error("a metric exists for a missing counter")
	}
	if t.Failed() {
		t.Log(text)
	}
}

func TestTheNumberOfSeriesIsBounded(t *testing.T) {
	m := New("v1")
	turn := tickAt(1)
	for i := range 10 * MaxWorkloads {
		turn.Snapshot.Workloads = append(turn.Snapshot.Workloads, node.Workload{
			ID: node.WorkloadID(fmt.Sprintf("a-%d", i)), Class: node.BE, Usage: node.Usage{CPU: node.Some(time.Second)},
		})
	}
	m.Observe(turn, nil, time.Second)
	_, text := scrape(t, m, "/metrics")
	if n := strings.Count(text, "tenon_workload_cpu_seconds_total{"); n != MaxWorkloads {
		t.Errorf("%d series", n)
	}
	for _, want := range []string{`workload="web"`, fmt.Sprintf("tenon_workloads_omitted %d\n", len(turn.Snapshot.Workloads)-MaxWorkloads)} {
		if !strings.Contains(text, want) {
			t.Errorf("the metrics lack %s", want)
		}
	}
}

// TestPodsHaveTheirNamespaceAndName checks the labels by which the metrics of pods join
// those of kube-state-metrics. A workload that is no pod has none.
func TestPodsHaveTheirNamespaceAndName(t *testing.T) {
	m := New("v1")
	turn := tickAt(1)
	delay := node.RunQueueDelay{Sum: node.Some(time.Second), Counts: make([]uint64, 40)}
	turn.Snapshot.Workloads = append(turn.Snapshot.Workloads,
		node.Workload{ID: "shop/front", Pod: true, Class: node.LS, Usage: node.Usage{CPU: node.Some(2 * time.Second), Memory: node.Some[unit.Bytes](5), Delay: delay}},
		node.Workload{ID: "shop/job", Class: node.BE, Usage: node.Usage{CPU: node.Some(3 * time.Second)}})
	turn.Snapshot.Waits = append(turn.Snapshot.Waits, node.Wait{Waiter: "shop/front", Runner: "shop/job", Time: time.Second})
	m.Observe(turn, nil, time.Second)
	_, text := scrape(t, m, "/metrics")
	for _, want := range []string{
		`tenon_workload_cpu_seconds_total{class="LS",namespace="shop",pod="front",workload="shop/front"} 2`,
		`tenon_workload_memory_bytes{class="LS",namespace="shop",pod="front",workload="shop/front"} 5`,
		`tenon_run_queue_delay_seconds_sum{class="LS",namespace="shop",pod="front",workload="shop/front"} 1`,
		`tenon_run_queue_wait_seconds_total{namespace="shop",pod="front",runner_class="BE",waiter="shop/front"} 1`,
		`tenon_workload_cpu_seconds_total{class="BE",namespace="",pod="",workload="shop/job"} 3`,
	} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("the metrics lack %s", want)
		}
	}
	if t.Failed() {
		t.Log(text)
	}
}

func TestANameThatIsNotTextHidesNothing(t *testing.T) {
	m := New("v1")
	turn := tickAt(1)
	turn.Snapshot.Workloads[0].ID = "be.slice/\xff"
	m.Observe(turn, nil, time.Second)
	if code, text := scrape(t, m, "/metrics"); code != http.StatusOK || !strings.Contains(text, `workload="web"`) {
		t.Errorf("%d %s", code, text)
	}
}

// TestWhatIsUnknownIsAbsent takes one value after the other from a tick. The metric
// that needs it must be absent, and not 0.
func TestWhatIsUnknownIsAbsent(t *testing.T) {
	for name, c := range map[string]struct {
		take func(*tick.Tick)
		gone string
	}{
		"memory of a class": {func(of *tick.Tick) { of.Snapshot.Workloads[1].Usage.Memory = node.Maybe[unit.Bytes]{} }, `tenon_class_memory_bytes{class="LS"}`},
		"throttled periods": {func(of *tick.Tick) { of.Snapshot.Workloads[1].Usage.ThrottledPeriods = node.Maybe[int64]{} }, "tenon_workload_quota_periods_total{"},
		"waits for a CPU": {func(of *tick.Tick) {
			of.Objectives["web"] = slo.Judgement{Verdict: slo.Undecided, Cause: slo.Unmeasured}
		}, "tenon_objective_missed{"},
		"whether a mechanism can run": {func(of *tick.Tick) {
			of.Selection.Mechanisms = []node.MechanismStatus{{Mechanism: node.MechanismIdle, Can: node.Unknown}}
		}, "tenon_isolation_mechanism_possible{"},
	} {
		for _, known := range []bool{true, false} {
			m, of := New("v1"), tickAt(1)
			if !known {
				c.take(&of)
			}
			m.Observe(of, nil, time.Second)
			if _, text := scrape(t, m, "/metrics"); strings.Contains(text, c.gone) != known {
				t.Errorf("%s, known %v: %s", name, known, c.gone)
			}
		}
	}
}

// TestNamesCannotSpeakToATerminal gives workloads names with control characters.
// Two names may look the same after that.
func TestNamesCannotSpeakToATerminal(t *testing.T) {
	m := New("v1")
	of := tickAt(1)
	for i, id := range []node.WorkloadID{"be/\x1b[2J\nweb 1", "be/\xff", `be/\xff`} {
		w := of.Snapshot.Workloads[0]
		w.ID, w.Usage.Memory = id, node.Some(unit.Bytes(i))
		of.Snapshot.Workloads = append(of.Snapshot.Workloads, w)
	}
	m.Observe(of, nil, time.Second)
	code, text := scrape(t, m, "/metrics")
	for _, want := range []string{`tenon_workload_memory_bytes{class="BE",namespace="",pod="",workload="be/\\x1b[2J\\nweb 1"} 0`, `tenon_workload_memory_bytes{class="BE",namespace="",pod="",workload="be/\\xff"} 1`, "tenon_workloads_omitted 1"} {
		if !strings.Contains(text, want) {
			t.Errorf("%s is missing", want)
		}
	}
	if code != http.StatusOK || strings.Contains(text, "\x1b") || strings.Contains(text, "\xff") {
		t.Errorf("%d: a control character is in the metrics", code)
	}
}

func TestTheLoopIsAliveAsLongAsItTicks(t *testing.T) {
	m := New("v1")
	clock := time.Unix(1700000000, 0)
	m.now, m.started = func() time.Time { return clock }, clock
	check := func(path string, want int) {
		t.Helper()
		if code, text := scrape(t, m, path); code != want {
			t.Errorf("%s: %d %s", path, code, text)
		}
	}
	check("/healthz", http.StatusOK)
	check("/readyz", http.StatusServiceUnavailable)
	m.Observe(tick.Tick{}, errors.New("no topology"), time.Second)
	check("/readyz", http.StatusServiceUnavailable)
	m.Observe(tickAt(1), nil, time.Second)
	check("/readyz", http.StatusOK)
	clock = clock.Add(8 * time.Second)
	check("/healthz", http.StatusOK)
	clock = clock.Add(time.Second)
	check("/healthz", http.StatusServiceUnavailable)
	m.Observe(tick.Tick{}, errors.New("no topology"), time.Second) // the loop runs, but it is blind: a restart would not help
	check("/livez", http.StatusOK)
	if code, text := scrape(t, m, "/healthz"); code != http.StatusServiceUnavailable || !strings.Contains(text, "no topology") {
		t.Errorf("a blind loop: /healthz %d %s", code, text)
	}
	check("/readyz", http.StatusServiceUnavailable)
	m.Observe(tickAt(2), nil, time.Second)
	check("/healthz", http.StatusOK)
}

// TestHealthIsWhatTheLoopDid checks that a loop that lives and does nothing for the
// services is not healthy, although a restart would not help.
func TestHealthIsWhatTheLoopDid(t *testing.T) {
	clock := time.Unix(1700000000, 0)
	refused := func(be bool) tick.Tick {
		of := tickAt(1)
		of.Refused = []tick.Refusal{{Since: clock, BE: be, Err: errors.New("apply be.slice cpu.max: append to the journal: file too large")}}
		return of
	}
	for name, c := range map[string]struct {
		after time.Duration // since the start
		ticks []tick.Tick
		want  string // in the text of /healthz; empty: it is good
	}{
		"no tick in the first moment":       {after: firstTick},
		"no tick":                           {after: firstTick + time.Second, want: "the first one has not ended"},
		"blind ticks":                       {after: firstTick + time.Second, ticks: []tick.Tick{{}}, want: "too many open files"},
		"best-effort work is not bounded":   {ticks: []tick.Tick{refused(true)}, want: "file too large"},
		"another knob is refused":           {ticks: []tick.Tick{refused(false)}},
		"best-effort work is bounded again": {ticks: []tick.Tick{refused(true), tickAt(2)}},
	} {
		m := New("v1")
		m.started = clock
		m.now = func() time.Time { return clock.Add(c.after) }
		for _, of := range c.ticks {
			m.Observe(of, errors.New("open /proc/stat: too many open files"), time.Second)
		}
		code, text := scrape(t, m, "/healthz")
		if (code == http.StatusOK) != (c.want == "") || !strings.Contains(text, c.want) {
			t.Errorf("%s: %d %s", name, code, text)
		}
		if code, text := scrape(t, m, "/livez"); code != http.StatusOK {
			t.Errorf("%s: /livez %d %s", name, code, text)
		}
	}
}

// TestDamagedStateFailsTheProbes damages the state. Both probes must fail while
// the damage lasts. If the journal has lost entries for good, only /readyz must
// fail, because a restart would not help.
func TestDamagedStateFailsTheProbes(t *testing.T) {
	m, h := New("v1"), health.New(nil)
	m.Show(h)
	m.Observe(tickAt(1), nil, time.Hour)
	for _, c := range []struct {
		kind           health.Kind
		healthz, ready int
	}{
		{health.State, http.StatusServiceUnavailable, http.StatusServiceUnavailable},
		{health.Lost, http.StatusOK, http.StatusServiceUnavailable},
		{health.Bounds, http.StatusOK, http.StatusOK},
		{health.Config, http.StatusOK, http.StatusOK},
		{health.Contested, http.StatusOK, http.StatusOK},
		{health.Refused, http.StatusOK, http.StatusOK},
		{health.Exposed, http.StatusOK, http.StatusOK},
	} {
		for _, text := range []string{"the directory is gone", ""} {
			h.Set(c.kind, "part", text)
			healthz, ready, gauge := c.healthz, c.ready, "1"
			if text == "" {
				healthz, ready, gauge = http.StatusOK, http.StatusOK, "0"
			}
			if code, said := scrape(t, m, "/healthz"); code != healthz || (text != "") != strings.Contains(said, "the directory") {
				t.Errorf("%s %q: /healthz %d %s", c.kind, text, code, said)
			}
			if code, said := scrape(t, m, "/livez"); code != healthz {
				t.Errorf("%s %q: /livez %d %s", c.kind, text, code, said)
			}
			if code, said := scrape(t, m, "/readyz"); code != ready {
				t.Errorf("%s %q: /readyz %d %s", c.kind, text, code, said)
			}
			if _, said := scrape(t, m, "/metrics"); !strings.Contains(said, `tenon_trouble{kind="`+string(c.kind)+`"} `+gauge) {
				t.Errorf("%s %q: the metric is missing", c.kind, text)
			}
		}
	}
}

func TestATakenAddressIsOneLine(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	var log strings.Builder
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan bool)
	go func() {
		Serve(ctx, taken.Addr().String(), New("v1").Handler(), slog.New(slog.NewTextHandler(&log, nil)))
		close(done)
	}()
	time.AfterFunc(20*time.Millisecond, cancel)
	<-done
	if strings.Count(log.String(), "\n") != 1 || !strings.Contains(log.String(), "no metrics") {
		t.Errorf("%s", log.String())
	}
}

func TestMetricsAreServed(t *testing.T) {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().String()
	free.Close()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan bool)
	go func() {
		Serve(ctx, address, New("v1").Handler(), slog.New(slog.DiscardHandler))
		close(done)
	}()
	var response *http.Response
	for range 1000 {
		if response, err = http.Get("http://" + address + "/metrics"); err == nil {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(response.Body)
	response.Body.Close()
	if err != nil || !strings.Contains(string(text), "process_resident_memory_bytes") {
		t.Errorf("%s, %v", text, err)
	}
	cancel()
	<-done
}

// TestEveryMetricIsDocumented checks that docs/metrics.md lists exactly the
// metrics that exist.
func TestEveryMetricIsDocumented(t *testing.T) {
	page, err := os.ReadFile("../../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| `(tenon_[a-z0-9_]+)`").FindAllStringSubmatch(string(page), -1) {
		documented[row[1]] = true
	}
	real := slices.Sorted(maps.Keys(names(t)))
	if got := slices.Sorted(maps.Keys(documented)); !slices.Equal(got, real) {
		t.Errorf("docs/metrics.md lists\n%v\nthe code has\n%v", got, real)
	}
}

// names returns the names of the metrics that only Tenon has.
func names(t *testing.T) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	observed := tickAt(1)
	observed.Shadow = &tick.Shadow{Total: map[plan.Owner]int64{plan.OwnerSuppress: 1}}
	for _, of := range []tick.Tick{tickAt(1), observed} {
		m := New("v1")
		m.Observe(of, errors.New("refused"), time.Second)
		families, err := m.registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if strings.HasPrefix(f.GetName(), "tenon_") {
				all[f.GetName()] = true
			}
		}
	}
	return all
}
