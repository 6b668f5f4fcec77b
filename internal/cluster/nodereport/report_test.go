package nodereport

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"tenon.sh/tenon/api/v1alpha1"
	"tenon.sh/tenon/internal/cluster/apiserver"
	"tenon.sh/tenon/internal/decide/burst"
	"tenon.sh/tenon/internal/decide/cache"
	"tenon.sh/tenon/internal/decide/evict"
	"tenon.sh/tenon/internal/decide/facts"
	"tenon.sh/tenon/internal/decide/isolation"
	"tenon.sh/tenon/internal/decide/memory"
	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/decide/policy"
	"tenon.sh/tenon/internal/decide/suppress"
	"tenon.sh/tenon/internal/decide/tick"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/trial"
	"tenon.sh/tenon/internal/model/unit"
)

var noon = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

func snapshot(at time.Time, used time.Duration, memory unit.Bytes) node.Snapshot {
	return node.Snapshot{At: at, Usage: node.Usage{CPU: node.Some(used), WorkingSet: node.Some(memory)}}
}

func TestUseIsAMeanAndPercentilesNeedTheirWholeWindow(t *testing.T) {
	var m Meter
	used := time.Duration(0)
	for i := range 6*60 + 1 { // six minutes: 1 CPU, and 2 in each fourth minute
		at := noon.Add(time.Duration(i) * time.Second)
		m.Observe(snapshot(at, used, unit.Bytes(i)<<20))
		rate := time.Second
		if i/60 == 3 {
			rate = 2 * time.Second
		}
		used += rate
	}
	if u := m.Usage(); u.CPU.MilliValue() != 1000 || u.Memory.Value() != 360<<20 {
		t.Errorf("use %v %v", u.CPU, u.Memory)
	}
	all := m.Percentiles()
	if len(all) != 1 || all[0].Window.Duration != 5*time.Minute {
		t.Fatalf("after six minutes: %+v", all)
	}
	if p := all[0]; p.P50.CPU.MilliValue() != 1000 || p.P90.CPU.MilliValue() != 2000 || p.P99.Memory.Value() != 360<<20 {
		t.Errorf("p50 %v p90 %v p99 memory %v", p.P50.CPU, p.P90.CPU, p.P99.Memory)
	}
}

func TestNoRateIsMadeOfAPause(t *testing.T) {
	var m Meter
	m.Observe(snapshot(noon, 0, 1))
	m.Observe(snapshot(noon.Add(time.Hour), time.Hour, 1))
	if u := m.Usage(); u.CPU != nil {
		t.Errorf("use %v was computed from an hour without snapshots", u.CPU)
	}
	m.Observe(snapshot(noon.Add(time.Hour+5*time.Second), time.Hour+time.Second, 1))
	if u := m.Usage(); u.CPU == nil || u.CPU.MilliValue() != 200 {
		t.Errorf("use %v", u.CPU)
	}
}

func offer(cpu int64) v1alpha1.NodeReportStatus {
	return v1alpha1.NodeReportStatus{Batch: v1alpha1.Batch{CPU: &v1alpha1.BatchAmount{Amount: *resource.NewMilliQuantity(cpu, resource.DecimalSI), Policy: "usage"}}}
}

func TestAFallIsReportedAtOnceAndARiseLater(t *testing.T) {
	cases := map[string]struct {
		after time.Duration
		next  v1alpha1.NodeReportStatus
		due   bool
	}{
		"a fall by a tenth after a second":         {time.Second, offer(3600), true},
		"a fall by a tenth at an early tick":       {970 * time.Millisecond, offer(3600), true},
		"a fall by a tenth sooner":                 {800 * time.Millisecond, offer(3600), false},
		"nothing is promised any more":             {time.Second, v1alpha1.NodeReportStatus{}, true},
		"a fall to nothing":                        {time.Second, offer(0), true},
		"a fall by a hundredth after nine seconds": {9 * time.Second, offer(3960), false},
		"a fall by a hundredth after ten seconds":  {10 * time.Second, offer(3960), true},
		"a rise after nine seconds":                {9 * time.Second, offer(8000), false},
		"a rise after ten seconds":                 {10 * time.Second, offer(8000), true},
		"the same after a minute":                  {time.Minute, offer(4000), true},
		"the same after 59 seconds":                {59 * time.Second, offer(4000), false},
		"the clock was set back":                   {-time.Hour, offer(4000), true},
	}
	for name, c := range cases {
		var p Pace
		if !p.Due(noon, offer(4000)) {
			t.Fatal("the first report is not due")
		}
		p.Sent(noon, offer(4000))
		if due := p.Due(noon.Add(c.after), c.next); due != c.due {
			t.Errorf("%s: due %v", name, due)
		}
	}
}

func TestWhatRunningPodsRequestIsNews(t *testing.T) {
	request := func(amount, milli int64) v1alpha1.NodeReportStatus {
		s := offer(amount)
		s.Batch.CPU.Requested = resource.NewMilliQuantity(milli, resource.DecimalSI)
		return s
	}
	for name, c := range map[string]struct {
		before, next v1alpha1.NodeReportStatus
		after        time.Duration
		due          bool
	}{
		"more after nine seconds":                               {request(4000, 2000), request(4000, 3000), 9 * time.Second, false},
		"more after ten seconds":                                {request(4000, 2000), request(4000, 3000), 10 * time.Second, true},
		"less after nine seconds":                               {request(4000, 2000), request(4000, 1000), 9 * time.Second, false},
		"less after ten seconds":                                {request(4000, 2000), request(4000, 1000), 10 * time.Second, true},
		"less of more than there is after a second":             {request(4000, 5000), request(4000, 4500), time.Second, true},
		"more of more than there is after nine seconds":         {request(4000, 5000), request(4000, 5500), 9 * time.Second, false},
		"the same of more than there is after nine seconds":     {request(4000, 5000), request(4000, 5000), 9 * time.Second, false},
		"for the first time after ten seconds":                  {offer(4000), request(4000, 1000), 10 * time.Second, true},
		"for the first time, after as long as nothing is other": {offer(4000), offer(4000), 10 * time.Second, false},
	} {
		var p Pace
		p.Sent(noon, c.before)
		if due := p.Due(noon.Add(c.after), c.next); due != c.due {
			t.Errorf("%s: due %v", name, due)
		}
	}
}

func TestUseAloneIsNoNews(t *testing.T) {
	var p Pace
	p.Sent(noon, offer(4000))
	next := offer(4000)
	cpu := *resource.NewMilliQuantity(700, resource.DecimalSI)
	next.Usage.CPU = &cpu
	next.Conditions = []metav1.Condition{}
	if p.Due(noon.Add(30*time.Second), next) {
		t.Error("use is sent between two heartbeats")
	}
	next.Conditions = []metav1.Condition{{Type: PodsKnown, Status: metav1.ConditionFalse, Reason: reasonNotTold}}
	if !p.Due(noon.Add(30*time.Second), next) {
		t.Error("a condition that changed is not sent")
	}
}

func view() View {
	s := snapshot(noon, time.Second, 1<<30)
	s.Capabilities = node.Capabilities{
		node.FeatureCPUBurst: {Verdict: node.No, Why: "this kernel has no cpu.max.burst"}, node.FeatureCgroupFreezer: {Verdict: node.Yes},
		node.FeatureResctrlL3: {Verdict: node.No, Why: "no L3 in cpuinfo"}, node.FeatureResctrlMB: {Verdict: node.No, Why: "no MB in cpuinfo"},
	}
	s.Knobs.Kernel.CgroupVersion = 1
	s.Workloads = []node.Workload{{ID: "a/web", Class: node.LS}, {ID: "b/job", Class: node.BE}, {ID: "b/job2", Class: node.BE}}
	v := View{Agent: "v1", Run: "r", Pods: Pods{From: "kubelet", ByClass: map[node.Class]int{node.LS: 1, node.BE: 1}, Unmanaged: 2}, Config: Config{From: "ConfigMap a/b"}}
	v.Tick = tick.Tick{Snapshot: s, Selection: node.Selection{Mechanism: node.MechanismIdle, Why: "the strongest"}}
	v.Tick.Wants = []plan.Want{{Intent: plan.Set, Knob: node.Knob{Cgroup: "kubepods/besteffort", File: node.FileCPUMax}, Value: node.CPUMax{Quota: 50 * time.Millisecond, Period: 100 * time.Millisecond}, Owner: plan.OwnerSuppress, Reason: "65% of 2000m"}}
	v.Policy = policy.Config{
		CPUQOS: isolation.Config{Enable: true}, Suppress: suppress.Config{Enable: true}, Burst: burst.Config{Policy: burst.Save},
		Memory: memory.Config{Classes: map[node.Class]memory.Shares{node.LS: {}}}, Cache: cache.Config{Classes: map[node.Class]cache.Share{node.BE: {}}},
		Evict: evict.Config{Memory: evict.MemoryConfig{ThresholdPercent: 70}},
	}
	return v
}

func find(all []metav1.Condition, kind string) metav1.Condition {
	for _, c := range all {
		if c.Type == kind {
			return c
		}
	}
	return metav1.Condition{}
}

func TestWhatTheNodeCannotDoIsSaidAndWhy(t *testing.T) {
	st := Status(view(), nil)
	for kind, want := range map[string]struct {
		status metav1.ConditionStatus
		reason string
		text   string
	}{
		"CPUQOS":       {"True", reasonAsAsked, "cpu.idle: the strongest"},
		"CPUBurst":     {"False", reasonUnsupported, "no cpu.max.burst"},
		"MemoryQOS":    {"False", reasonUnsupported, "cgroup v1"},
		"Resctrl":      {"False", reasonUnsupported, "no L3 in cpuinfo"},
		"Eviction":     {"True", reasonAsAsked, "Eviction API"},
		Suppressing:    {"True", reasonBounded, "kubepods/besteffort cpu.max"},
		ConfigAccepted: {"True", reasonAsAsked, "ConfigMap a/b"},
		PodsKnown:      {"True", reasonTold, "kubelet"},
		KnobsWritten:   {"True", reasonAsAsked, ""},
		AgentHealthy:   {"True", reasonAsAsked, ""},
	} {
		c := find(st.Conditions, kind)
		if c.Status != want.status || c.Reason != want.reason || !strings.Contains(c.Message, want.text) {
			t.Errorf("%s: %+v", kind, c)
		}
	}
	if c := find(st.Conditions, "BlockIO"); c.Type != "" {
		t.Error("a feature that is not enabled has a condition")
	}
	// One of the two best-effort workloads is a cgroup outside pods.
	if st.Pods["BE"] != 1 || st.Pods["LS"] != 1 || st.Pods["Unmanaged"] != 2 {
		t.Errorf("pods %v", st.Pods)
	}
}

// TestAMissingConfigMapIsAProblem checks the condition ConfigAccepted. Without a
// ConfigMap from the start, a node whose file enables something is as its owner
// wants it.
func TestAMissingConfigMapIsAProblem(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	some, none := view().Policy, policy.Config{}
	for name, x := range map[string]struct {
		missing Missing
		policy  policy.Config
		status  metav1.ConditionStatus
		reason  string
		text    string
	}{
		"just deleted": {Missing{Is: true, Lost: true, Since: at, Until: at.Add(5 * time.Minute)}, some, "False", "ConfigMapMissing", "ConfigMap a/b does not exist since 12:00:00: its last content holds until 12:05:00, and then the file of tenond"},
		"deleted":      {Missing{Is: true, Lost: true}, none, "False", "ConfigMapMissing", "ConfigMap a/b does not exist: the file of tenond holds, and it enables neither isolation nor batch resources nor another strategy"},
		"deleted, and the file enables something": {Missing{Is: true, Lost: true}, some, "False", "ConfigMapMissing", "ConfigMap a/b does not exist: the file of tenond holds, and it enables cpuQOS, cpuSuppress, "},
		"never there": {Missing{Is: true}, none, "False", "ConfigMapMissing", "it enables neither isolation"},
		"never there, and the file enables something": {Missing{Is: true}, some, "True", reasonFromFile, "it enables cpuQOS, "},
		"there": {Missing{}, none, "True", reasonAsAsked, "ConfigMap a/b"},
	} {
		v := view()
		v.Config.Missing, v.Policy = x.missing, x.policy
		if c := find(Status(v, nil).Conditions, ConfigAccepted); c.Status != x.status || c.Reason != x.reason || !strings.Contains(c.Message, x.text) {
			t.Errorf("%s: %+v", name, c)
		}
	}
	v := view()
	v.Config.Missing, v.Config.Ignored = Missing{Is: true, Lost: true}, []string{"the node's annotation x: wrong"}
	if c := find(Status(v, nil).Conditions, ConfigAccepted); !strings.Contains(c.Message, "does not exist") || !strings.Contains(c.Message, "annotation x: wrong") {
		t.Errorf("beside another fault: %+v", c)
	}
}

func TestTroubleIsACondition(t *testing.T) {
	v := view()
	v.Pods.Trouble = "connection refused"
	v.Config.Faults = []string{"resource-qos-config: not JSON"}
	v.Tick.Refused = []tick.Refusal{{Err: errors.New("write x: busy")}}
	v.Troubles = []string{"the state directory is open to all"}
	st := Status(v, nil)
	for kind, text := range map[string]string{PodsKnown: "connection refused", ConfigAccepted: "not JSON", KnobsWritten: "busy", AgentHealthy: "open to all"} {
		if c := find(st.Conditions, kind); c.Status != metav1.ConditionFalse || !strings.Contains(c.Message, text) {
			t.Errorf("%+v", c)
		}
	}
}

// TestAFaultOfTheNodeDoesNotBlameTheConfigMap compares the messages about faults
// in the ConfigMap and in the annotations and labels of the node.
func TestAFaultOfTheNodeDoesNotBlameTheConfigMap(t *testing.T) {
	const (
		reserved = "the node's annotation node.koordinator.sh/reservation.reservedCPUs: \"a\": want CPUs such as 0-1,8; the whole value counts as missing"
		ratio    = "the node's label r: \"2\": want a number from 0 to 1; the whole value counts as missing"
		key      = "ConfigMap a/b: resource-qos-config: not JSON; the last valid values hold"
	)
	ignored := []string{Ignored(`annotation node.koordinator.sh/reservation.reservedCPUs: "a": want CPUs such as 0-1,8`), Ignored(`label r: "2": want a number from 0 to 1`)}
	for want, c := range map[string]Config{
		reserved + "; " + ratio:              {Ignored: ignored},
		key:                                  {Faults: []string{"resource-qos-config: not JSON"}},
		key + "; " + reserved + "; " + ratio: {Faults: []string{"resource-qos-config: not JSON"}, Ignored: ignored},
	} {
		v := view()
		c.From = "ConfigMap a/b"
		v.Config = c
		if got := find(Status(v, nil).Conditions, ConfigAccepted); got.Status != metav1.ConditionFalse || got.Message != want {
			t.Errorf("%s: %q\nwant %q", got.Status, got.Message, want)
		}
	}
}

// TestASettingThatIsNotMeantHasItsReason checks the condition that makes kubectl
// tenon doctor name such a setting.
func TestASettingThatIsNotMeantHasItsReason(t *testing.T) {
	v := view()
	v.Config = Config{From: "ConfigMap a/b", Unlikely: true, Notices: []string{"x: 250 counts", "y is not acted on"}}
	got := find(Status(v, nil).Conditions, ConfigAccepted)
	if got.Status != metav1.ConditionTrue || got.Reason != v1alpha1.ReasonUnlikely || got.Message != "ConfigMap a/b: x: 250 counts; y is not acted on" {
		t.Errorf("%+v", got)
	}
}

// TestAReportHasTheTimeOfTheWallClock reports after the machine slept for an hour:
// the clock of snapshots has stopped meanwhile. Clients compare the report with
// their own clocks, and would take the node for silent.
func TestAReportHasTheTimeOfTheWallClock(t *testing.T) {
	v := view()
	v.Tick.Begun = v.Tick.Snapshot.At.Add(time.Hour)
	status := Status(v, nil)
	if !status.Reported.Time.Equal(v.Tick.Begun) {
		t.Errorf("reported at %v, want %v", status.Reported, v.Tick.Begun)
	}
	if c := find(status.Conditions, PodsKnown); !c.LastTransitionTime.Time.Equal(v.Tick.Begun) {
		t.Errorf("a condition since %v, want %v", c.LastTransitionTime, v.Tick.Begun)
	}
}

func TestAConditionKeepsItsTimeUntilItTurns(t *testing.T) {
	v := view()
	v.Tick.Begun = noon
	first := Status(v, nil)
	v.Tick.Begun = noon.Add(time.Hour)
	v.Pods.Trouble = "gone"
	second := Status(v, first.Conditions)
	if c := find(second.Conditions, "CPUQOS"); !c.LastTransitionTime.Time.Equal(noon) {
		t.Errorf("%v", c.LastTransitionTime)
	}
	if c := find(second.Conditions, PodsKnown); !c.LastTransitionTime.Time.Equal(noon.Add(time.Hour)) {
		t.Errorf("%v", c.LastTransitionTime)
	}
}

func TestTermsOfTheReportAddUp(t *testing.T) {
	v := view()
	v.Tick.Batch.CPU = node.Amount[unit.MilliCPU]{Value: 700, Policy: "usage", Formula: 800, Held: "later", Terms: []node.Term[unit.MilliCPU]{
		{Name: node.TermCapacity, Amount: 1200, Text: "60% of 2000m"}, {Name: "LS", Amount: -500, Text: "used by LS"}}}
	b := Status(v, nil).Batch
	var sum int64
	for _, term := range b.CPU.Terms {
		sum += term.Amount.MilliValue()
	}
	if sum != b.CPU.Amount.MilliValue() || sum != 700 || b.CPU.Held != "later" || b.Memory != nil {
		t.Errorf("%+v", b)
	}
}

// An api is an Applier that accepts or refuses reports.
type api struct {
	mu     sync.Mutex
	exists bool
	fail   error
	paths  []string
	last   []byte
}

func (a *api) Fields(context.Context, schema.GroupVersionKind) (*apiserver.Fields, error) {
	return nil, apiserver.ErrAbsent
}

func (a *api) Apply(_ context.Context, path, owner string, object any) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.paths = append(a.paths, path)
	if a.fail != nil {
		return a.fail
	}
	if strings.HasSuffix(path, "/status") && !a.exists {
		return apiserver.ErrAbsent
	}
	a.exists = true
	a.last, _ = json.Marshal(object)
	return nil
}

func (a *api) said() (paths []string, last string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]string(nil), a.paths...), string(a.last)
}

func TestTheReportIsMadeWhereThereIsNone(t *testing.T) {
	a := &api{}
	s := NewSender(a, "node-1", func() types.UID { return "u" }, slog.New(slog.DiscardHandler))
	st := offer(100)
	st.Reported = metav1.NewMicroTime(noon)
	if err := s.send(context.Background(), st); err != nil {
		t.Fatal(err)
	}
	const path = "/apis/tenon.sh/v1alpha1/nodereports/node-1"
	paths, last := a.said()
	if strings.Join(paths, " ") != path+"/status "+path+" "+path+"/status" {
		t.Errorf("%v", paths)
	}
	for _, never := range []string{"null", "published", `"usage":{}`, "ownerReferences"} {
		if strings.Contains(last, never) {
			t.Errorf("%s is in the applied object: %s", never, last)
		}
	}
	if !strings.Contains(last, `"amount":"100m"`) {
		t.Error(last)
	}
}

// TestAnOlderDefinitionIsLoggedOnce deletes the report while the definition of the
// reports lacks a field: the report is made anew, and the log says nothing new.
func TestAnOlderDefinitionIsLoggedOnce(t *testing.T) {
	a := &api{exists: true}
	var log strings.Builder
	s := NewSender(a, "node-1", func() types.UID { return "" }, slog.New(slog.NewTextHandler(&log, nil)))
	s.fields = &apiserver.Fields{Properties: map[string]*apiserver.Fields{"status": {Properties: map[string]*apiserver.Fields{"reported": {}}}}}
	s.asked = time.Now()
	for _, exists := range []bool{true, false, true} {
		a.exists = exists
		if err := s.send(context.Background(), offer(100)); err != nil {
			t.Fatal(err)
		}
	}
	if n := strings.Count(log.String(), "\n"); n != 1 || !strings.Contains(log.String(), "status.batch") {
		t.Errorf("the log has %d lines:\n%s", n, log.String())
	}
	if _, last := a.said(); strings.Contains(last, "batch") {
		t.Error(last)
	}
}

func TestTheLatestReportIsSentWhenTheServerIsBack(t *testing.T) {
	a := &api{exists: true, fail: errors.New("no route to host")}
	s := NewSender(a, "node-1", func() types.UID { return "" }, slog.New(slog.DiscardHandler))
	ctx, stop := context.WithCancel(context.Background())
	over := make(chan struct{})
	go func() { defer close(over); s.Run(ctx) }()
	defer func() { stop(); <-over }()
	begun := time.Now()
	for n := range int64(50) {
		s.Offer(offer(1000 + n))
	}
	if took := time.Since(begun); took > time.Second {
		t.Errorf("offering took %v", took)
	}
	a.mu.Lock()
	a.fail = nil
	a.mu.Unlock()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if _, last := a.said(); strings.Contains(last, `"1049m"`) {
			break
		}
		if time.Now().After(deadline) {
			_, last := a.said()
			t.Fatal(last)
		}
	}
}

// TestAServerThatIsBackIsAskedAgainSoon checks the retries after an outage. An
// API server that has just started refuses requests, but accepts them a moment
// later. The agent must not wait half a minute before it tries again.
func TestAServerThatIsBackIsAskedAgainSoon(t *testing.T) {
	away := errors.New("connection refused")
	refused := fmt.Errorf("apply: %w", apierrors.NewForbidden(schema.GroupResource{Resource: "nodereports"}, "node-1", errors.New("not yet")))
	var p retryDelay
	var got []float64
	for _, err := range []error{away, away, away, away, away, away, away, refused, refused, refused, away, away} {
		got = append(got, p.delayAfter(err).Seconds())
	}
	if want := []float64{1, 2, 4, 8, 16, 30, 30, 1, 2, 4, 8, 16}; !slices.Equal(got, want) {
		t.Errorf("waits of %v s, want %v", got, want)
	}
}

// TestCPUSetsOfAnotherWriterAreReported checks a node on which the kubelet
// writes the cpusets. There, only a quota bounds best-effort work, and the
// report must say so.
func TestCPUSetsOfAnotherWriterAreReported(t *testing.T) {
	quota := plan.Want{Owner: plan.OwnerSuppress, Intent: plan.Set, Knob: node.Knob{Cgroup: "be", File: node.FileCPUMax}}
	for kept, want := range map[bool]string{false: "", true: "by quota alone: the kubelet binds CPUs here (cpuManagerPolicy: static)"} {
		v := View{Policy: policy.Config{NodeCPUs: facts.NodeCPUs{CPUSetsManagedExternally: kept}, Suppress: suppress.Config{Enable: true}}, Tick: tick.Tick{Wants: []plan.Want{quota}}}
		if by, why := suppressedBy(v); by != "cpu.max" || why != want {
			t.Errorf("cpusets managed externally %v: %q, %q; want cpu.max, %q", kept, by, why, want)
		}
	}
}

// TestAKnobLeftToAnotherComponentIsNoRefusal checks that the condition stays
// the same while Tenon does not write a contested knob. Each change would be a
// write to the API server.
func TestAKnobLeftToAnotherComponentIsNoRefusal(t *testing.T) {
	v := view()
	at := v.Tick.Snapshot.At
	v.Tick.Snapshot.Conflicts = []node.WriteConflict{{Knob: node.Knob{Cgroup: "a", File: node.FileCPUWeight}, Wrote: at, Found: []time.Time{at, at, at}}}
	for name, x := range map[string]struct {
		refused []tick.Refusal
		status  metav1.ConditionStatus
		reason  string
	}{
		"it rests":            {nil, "True", reasonContested},
		"another was refused": {[]tick.Refusal{{Err: errors.New("permission denied")}}, "False", reasonRefused},
	} {
		v.Tick.Done = []tick.Outcome{{}, {Err: errors.New("a single failure, which the next tick tries again")}}
		v.Tick.Refused = x.refused
		c := find(Status(v, nil).Conditions, KnobsWritten)
		if c.Status != x.status || c.Reason != x.reason || x.reason == reasonRefused && strings.Contains(c.Message, "left so") {
			t.Errorf("%s: %+v", name, c)
		}
	}
}

func TestALongMessageIsCutBetweenCharacters(t *testing.T) {
	for shift := range 4 {
		got := clip(strings.Repeat("x", shift) + strings.Repeat("µ€", maxMessage))
		if !utf8.ValidString(got) || len(got) > maxMessage || len(got) < maxMessage-8 {
			t.Errorf("%d bytes, valid %v", len(got), utf8.ValidString(got))
		}
	}
}

func TestAgentsDoNotComeBackTogether(t *testing.T) {
	waits := map[time.Duration]bool{}
	for range 100 {
		w := jittered(10 * time.Second)
		if w < 8*time.Second || w > 12*time.Second {
			t.Errorf("%v", w)
		}
		waits[w] = true
	}
	if len(waits) < 90 {
		t.Errorf("%d different waits of 100", len(waits))
	}
}

func TestTheReportHasWhatTrialsFound(t *testing.T) {
	v := view()
	if s := Status(v, nil); s.Trials != nil {
		t.Errorf("an agent that has not looked at trials reports %+v", s.Trials)
	}
	v.Tick.Trials = trial.Status{
		Kept: node.MechanismIdle, Since: noon, Why: "cpu.idle was tried: kept",
		Results: []trial.Result{{
			Candidate: node.MechanismIdle, Finding: trial.Kept, Why: "the services wait less with it", Ended: noon, Pairs: 16,
			Ratio: 0.7754, Low: 0.69, High: 0.86, Without: 20 * time.Microsecond, With: 15500 * time.Nanosecond, More: 2,
			Services: []trial.Service{{Name: "web", Pairs: 16, HourWithout: 72 * time.Second, HourWith: 55 * time.Second}},
		}},
	}
	s := Status(v, nil)
	if s.Trials == nil || s.Trials.Kept != "cpu.idle" || !s.Trials.Since.Time.Equal(noon) || len(s.Trials.Results) != 1 {
		t.Fatalf("trials %+v", s.Trials)
	}
	r := s.Trials.Results[0]
	if r.Ratio != 775 || r.Low != 690 || r.High != 860 || r.Pairs != 16 || r.Finding != "kept" || r.More != 2 || r.With.Duration != 15500*time.Nanosecond {
		t.Errorf("result %+v", r)
	}
	if w := r.Services; len(w) != 1 || w[0].Name != "web" || w[0].Without.Duration != 72*time.Second || w[0].With.Duration != 55*time.Second {
		t.Errorf("services %+v", w)
	}
}

func TestAFindingIsNewsAndAPairIsNot(t *testing.T) {
	at := func(trying string, why string, ended ...time.Time) v1alpha1.NodeReportStatus {
		s := offer(4000)
		s.Trials = &v1alpha1.Trials{Trying: trying, Why: why}
		for _, e := range ended {
			s.Trials.Results = append(s.Trials.Results, v1alpha1.TrialResult{Ended: metav1.NewTime(e)})
		}
		return s
	}
	before := at("cpu.idle", "3 pairs so far")
	for name, c := range map[string]struct {
		next v1alpha1.NodeReportStatus
		due  bool
	}{
		"another pair":         {at("cpu.idle", "4 pairs so far"), false},
		"the end of the trial": {at("", "", noon), true},
		"the next candidate":   {at("siblings", ""), true},
		"no trials any more":   {offer(4000), true},
	} {
		var p Pace
		p.Sent(noon, before)
		if due := p.Due(noon.Add(changeGap), c.next); due != c.due {
			t.Errorf("%s: due %v", name, due)
		}
	}
}

// TestContainersOutsideTheirPodAreAProblem checks that the report says whether
// the containers of the node are in the cgroups of their pods.
func TestContainersOutsideTheirPodAreAProblem(t *testing.T) {
	for name, c := range map[string]struct {
		at   Containers
		want string // part of the message; empty: no problem
	}{
		"all inside":        {Containers{Running: 3, Inside: 3}, ""},
		"none runs":         {Containers{}, ""},
		"one is starting":   {Containers{Running: 3, Inside: 2}, ""},
		"the drivers":       {Containers{Running: 3, Outside: 3, Example: "system.slice/a:b:c"}, "3 of 3 running containers are not in the cgroup of their pod, such as system.slice/a:b:c"},
		"pods from before":  {Containers{Running: 3, Inside: 2, Outside: 1, Example: "a:b:c"}, "1 of 3 running containers"},
		"another driver":    {Containers{Running: 3, Inside: 2, OtherDriver: 1, Example: "kubepods/podx"}, "1 of 3 running containers are in pods that the kubelet made with another cgroup driver than it has now, such as kubepods/podx"},
		"an unknown place":  {Containers{Running: 2, Expected: "kubepods/podx"}, "2 containers run and none of their cgroups is where"},
		"an unknown source": {Containers{Running: 1, Expected: "kubepods/podx"}, "below a cgroup such as kubepods/podx"},
	} {
		v := view()
		v.Pods.Containers = c.at
		got := find(Status(v, nil).Conditions, PodsKnown)
		if bad := got.Status == metav1.ConditionFalse; bad != (c.want != "") || !strings.Contains(got.Message, c.want) {
			t.Errorf("%s: %s, %s", name, got.Status, got.Message)
		}
	}
}
