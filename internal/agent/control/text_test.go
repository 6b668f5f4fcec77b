package control

import (
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"tenon.sh/tenon/internal/agent/record"
	"tenon.sh/tenon/internal/config"
	"tenon.sh/tenon/internal/decide/culprit"
	"tenon.sh/tenon/internal/decide/slo"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

func TestTheStatusAsText(t *testing.T) {
	l := NewLedger("v1")
	l.started = noon.Add(-3 * time.Hour)
	l.Observe(addWrite(measuredTick(time.Second, 800), nil), nil)
	l.Observe(addWrite(measuredTick(2*time.Second, 700), errors.New("read-only file system")), nil)
	const want = `tenond     v1, up 3h00m, 2 ticks
last tick  12:00:02: sense 300µs, decide 100µs, act 1ms
node       2 CPUs, 1700m in use; 3.0Gi of 8.0Gi memory in use
knobs      0 not as they were before Tenon, 1 cannot be written
BE bound   batch.slice cpu.max 70000 100000  # 65% of 2000m - 500m in use by others

CLASS  WORKLOADS  CPU    MEMORY
LS     1          500m   1.0Gi
BE     1          1200m  300Mi

failing: batch.slice cpu.max "max 100000" -> "70000 100000": read-only file system

Last writes:
12:00:02 batch.slice cpu.max max 100000 -> 70000 100000  # 65% of 2000m - 500m in use by others (failed: read-only file system)
12:00:01 batch.slice cpu.max max 100000 -> 80000 100000  # 65% of 2000m - 500m in use by others
`
	if got := l.Status().String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got := NewLedger("v1").Status().String(); got != "tenond v1 has started and has made no tick yet.\n" {
		t.Errorf("before the first tick: %s", got)
	}
}

func TestAnExplanationAsText(t *testing.T) {
	l := NewLedger("v1")
	l.Observe(addWrite(measuredTick(time.Second, 800), nil), nil)
	l.Observe(measuredTick(64*time.Second, 800), nil)
	e, err := l.ExplainWorkload("job.service")
	if err != nil {
		t.Fatal(err)
	}
	const want = `batch.slice/job.service: a workload of class BE, by rule batch
  uses       CPU 1200m, memory 300Mi, held back by its own quota 25% of the time
  asked for  at most 2000m of CPU
  cgroup     batch.slice/job.service, which meets the other classes at batch.slice

batch.slice/job.service memory
  now     not read, because Tenon leaves it alone
  before  the same: Tenon has not changed it
  wanted  what it was before, by limit, since 2026-03-01 12:00:01 (1m03s)
  because no memory limit was asked for

batch.slice cpu.max
  now     max 100000
  before  the same: Tenon has not changed it
  wanted  80000 100000, by suppress, since 2026-03-01 12:00:01 (1m03s)
  because 65% of 2000m - 500m in use by others
  last    12:00:01 batch.slice cpu.max max 100000 -> 80000 100000  # 65% of 2000m - 500m in use by others
`
	if got := e.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if e, err = l.ExplainKnob(quota); err != nil {
		t.Fatal(err)
	}
	const wantKnob = `batch.slice: a cgroup

In it:
  batch.slice/job.service  BE  CPU 1200m  memory 300Mi  rule batch

batch.slice cpu.max
`
	if got := e.String(); got[:min(len(got), len(wantKnob))] != wantKnob {
		t.Errorf("got\n%s\nwant it to start with\n%s", got, wantKnob)
	}
}

// TestAMissedObjectiveIsExplained checks what tenon explain, status and top say of a
// service that misses its objective, and of one that keeps it.
func TestAMissedObjectiveIsExplained(t *testing.T) {
	const web, job = "system.slice/web.service", "batch.slice/job.service"
	of := measuredTick(64*time.Second, 800)
	of.Objectives = map[node.WorkloadID]slo.Judgement{web: {
		Verdict: slo.Missed, Cause: slo.ForBE, Since: noon.Add(24 * time.Second), Objective: 2 * time.Millisecond, Tail: 8389 * time.Microsecond,
		Waits: slo.Waits{Waited: time.Second, ByBE: 640 * time.Millisecond, Runners: []slo.Runner{{ID: job, Cause: slo.ForBE, Time: 640 * time.Millisecond}}},
	}}
	of.Single = map[node.WorkloadID]culprit.Bound{job: {Victim: web, May: 750, Share: 100}}
	of.Lasted = map[node.WorkloadID]slo.Lasted{web: {Kept: 119 * time.Minute, Missed: 40 * time.Second, Undecided: 20 * time.Second}}
	l := NewLedger("v1")
	l.Observe(measuredTick(63*time.Second, 800), nil)
	l.Observe(of, nil)
	explained := func() string {
		e, err := l.ExplainWorkload("web.service")
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		var sent Explanation // over the socket
		if err := json.Unmarshal(text, &sent); err != nil {
			t.Fatal(err)
		}
		return sent.String()
	}
	const want = `  objective  99 of 100 waits of its threads for a CPU end within 2ms
             It is missed for 40s: its threads wait up to 8.4ms (P99). Best-effort work ran during 64 % of the waiting time: batch.slice/job.service 64 %. batch.slice/job.service alone gives way: it has at most 0.75 CPUs. All other best-effort work keeps its CPU. In the last 2h00m: kept 99.1 %, missed 0.5 %, undecided 0.2 %.
`
	if text := explained(); !strings.Contains(text, want) {
		t.Errorf("got\n%s\nwant in it\n%s", text, want)
	}
	page, err := os.ReadFile("../../../docs/objectives.md")
	flat := func(text string) string { return strings.Join(strings.Fields(text), " ") }
	if text, _, _ := strings.Cut(explained(), "  asked for"); err != nil || !strings.Contains(flat(string(page)), flat("$ tenon explain web.service "+text+"```")) {
		t.Errorf("docs/objectives.md shows another text than %s (%v)", text, err)
	}
	const line = "missed     system.slice/web.service for 40s: best-effort (batch.slice/job.service 64 %)\n"
	if text := l.Status().String(); !strings.Contains(text, line) {
		t.Errorf("got\n%s\nwant in it\n%s", text, line)
	}
	j := of.Objectives[web]
	j.Verdict, j.Cause, j.Tail, j.Waits = slo.Kept, "", time.Millisecond, slo.Waits{}
	of.Objectives[web] = j
	l.Observe(of, nil)
	if text := explained(); !strings.Contains(text, "It is kept for 40s: 99 of 100 waits ended within 1ms. "+job+" alone gives way: it has at most 0.75 CPUs. In the last 2h00m: kept 99.1 %, missed 0.5 %, undecided 0.2 %.\n") {
		t.Errorf("kept: %s", text)
	}
	if text := l.Status().String(); strings.Contains(text, "missed") {
		t.Errorf("kept: %s", text)
	}
}

// TestAnObjectiveIsSuggested checks what tenon explain says of a service that has no
// objective: an object that can be stated as it is, once enough is known.
func TestAnObjectiveIsSuggested(t *testing.T) {
	const web = "system.slice/web.service"
	of := measuredTick(64*time.Second, 800)
	counts := make([]uint64, 29)
	counts[11] = 1000
	explain := func(b slo.Baseline) (w Workload, text string) {
		of.Baselines.Work = map[node.WorkloadID]slo.Baseline{web: b}
		l := NewLedger("v1")
		l.Observe(measuredTick(63*time.Second, 800), nil)
		l.Observe(of, nil)
		e, err := l.ExplainWorkload("web.service")
		if err != nil {
			t.Fatal(err)
		}
		return *e.Workload, e.String()
	}
	w, text := explain(slo.Baseline{Windows: 60, Quiet: 42, Counts: counts})
	if w.Suggested == nil || w.Suggested.RunQueueDelay != 2*time.Millisecond {
		t.Errorf("suggested: %+v", w.Suggested)
	}
	page, err := os.ReadFile("../../../docs/objectives.md")
	flat := func(text string) string { return strings.Join(strings.Fields(text), " ") }
	if shown, _, _ := strings.Cut(text, "  asked for"); err != nil || !strings.Contains(flat(string(page)), flat("$ tenon explain web.service "+shown+"```")) {
		t.Errorf("docs/objectives.md shows another text than %s (%v)", shown, err)
	}
	_, object, _ := strings.Cut(text, "Suggested: ")
	object, _, _ = strings.Cut(object, ". In")
	if o, faults := config.ReadObjective(object, node.LS); len(faults) > 0 || o.RunQueueDelay != node.Some(2*time.Millisecond) {
		t.Errorf("%q cannot be stated: %+v, %v", object, o, faults)
	}
	for name, b := range map[string]slo.Baseline{"no waits": {}, "few quiet windows": {Windows: 40, Quiet: 12, Counts: counts}, "too long": {Windows: 60, Quiet: 42, Counts: append(make([]uint64, 28), 1)}} {
		if w, text := explain(b); w.Suggested == nil || w.Suggested.RunQueueDelay != 0 || !strings.Contains(text, "  objective  none. None is suggested") {
			t.Errorf("%s: %+v\n%s", name, w.Suggested, text)
		}
	}
	of.Baselines = slo.Baselines{}
	l := NewLedger("v1")
	l.Observe(of, nil)
	if e, err := l.ExplainWorkload("web.service"); err != nil || e.Workload.Suggested != nil || strings.Contains(e.String(), "objective") {
		t.Errorf("without counted waits: %s (%v)", e, err)
	}
}

func TestSizesAndTimesAreShort(t *testing.T) {
	for b, want := range map[unit.Bytes]string{0: "0", 1023: "1023", 1536: "1.5Ki", 300 << 20: "300Mi", 3 << 30: "3.0Gi", unit.MaxBytes: "max"} {
		if got := Size(b); got != want {
			t.Errorf("%d: %s, want %s", int64(b), got, want)
		}
	}
	for d, want := range map[time.Duration]string{
		0: "0s", 59900 * time.Millisecond: "59s", 61 * time.Second: "1m01s", 90 * time.Minute: "1h30m", 72 * time.Hour: "3d",
	} {
		if got := PrintDuration(d); got != want {
			t.Errorf("%v: %s, want %s", d, got, want)
		}
	}
}

// TestNamesDoNotReachTheTerminal checks that control characters in the name of
// a cgroup are replaced, because users may create cgroups and choose their
// names.
func TestNamesDoNotReachTheTerminal(t *testing.T) {
	l := NewLedger("v1")
	turn := measuredTick(time.Second, 800)
	turn.Snapshot.Workloads[0].ID = "batch.slice/\x1b]0;owned\a"
	l.Observe(turn, nil)
	e, err := l.ExplainWorkload("batch.slice/\x1b]0;owned\a")
	if err != nil || strings.ContainsAny(e.String(), "\x1b\a") {
		t.Errorf("%q, %v", e.String(), err)
	}
}

// TestNamesCannotForgeLines gives a workload and its knobs a name with a line feed
// and an escape sequence, as a user who may create cgroups can.
func TestNamesCannotForgeLines(t *testing.T) {
	const evil = "web\nTROUBLE (state): run me\x1b[2J\u202e"
	of := measuredTick(time.Second, 800)
	for i := range of.Snapshot.Workloads {
		w := &of.Snapshot.Workloads[i]
		w.ID, w.Cgroup, w.Rule = w.ID+evil, w.Cgroup+evil, evil
	}
	for i := range of.Wants {
		of.Wants[i].Knob.Cgroup += evil
		of.Wants[i].Reason += evil
	}
	l := NewLedger("v1")
	l.Observe(of, nil)
	texts := []string{l.Status().String(), l.QOS().String(), l.QOS().Outcome(), Line(record.Write{Knob: node.Knob{Cgroup: evil}, Why: evil, Error: evil, Outcome: record.Failed})}
	for _, w := range of.Snapshot.Workloads {
		e, err := l.ExplainWorkload(string(w.ID))
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, e.String())
	}
	for _, w := range of.Wants {
		if e, err := l.ExplainKnob(w.Knob); err == nil {
			texts = append(texts, e.String())
		}
	}
	for _, text := range texts {
		if strings.ContainsAny(text, "\x1b\u202e") || strings.Contains("\n"+text, "\nTROUBLE") {
			t.Errorf("a name has forged a line:\n%q", text)
		}
	}
	if !strings.Contains(texts[3], `web\nTROUBLE`) {
		t.Errorf("the name is not visible: %q", texts[3])
	}
}
