package manager

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tenon.sh/tenon/api/v1alpha1"
	"tenon.sh/tenon/internal/cluster/kube"
	"tenon.sh/tenon/internal/cluster/quantity"
	"tenon.sh/tenon/internal/decide/overcommit"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

var epoch = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

// colocationDefaults returns the defaults of colocation-config with colocation
// enabled.
func colocationDefaults() overcommit.Config {
	return overcommit.Config{
		Enable: true, DegradeAfter: 15 * time.Minute, RenewAfter: 300 * time.Second, WorthPPM: 100_000,
		CPU:    overcommit.Reclaim{ThresholdPercent: 60, Policy: overcommit.ByUsage},
		Memory: overcommit.Reclaim{ThresholdPercent: 65, Policy: overcommit.ByUsage},
	}
}

// machineOf returns a node with this number of CPUs and GiB.
func machineOf(cpus, gib int64) *corev1.Node {
	list := corev1.ResourceList{corev1.ResourceCPU: *resource.NewQuantity(cpus, resource.DecimalSI), corev1.ResourceMemory: *resource.NewQuantity(gib<<30, resource.BinarySI)}
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Status: corev1.NodeStatus{Capacity: list, Allocatable: list.DeepCopy()}}
}

// giveBatch gives a node batch resources.
func giveBatch(n *corev1.Node, milli, bytes int64) *corev1.Node {
	for _, list := range []corev1.ResourceList{n.Status.Capacity, n.Status.Allocatable} {
		list[kube.BatchCPU], list[kube.BatchMemory] = cpu.quantity(milli), memory.quantity(bytes)
	}
	return n
}

// promise returns an amount with three terms: the part of the capacity that all
// work shares, the usage of the system, and the usage of other work.
func promise(k kind, share, system, others int64) *v1alpha1.BatchAmount {
	v := share - system - others
	a := &v1alpha1.BatchAmount{Policy: "usage", Terms: []v1alpha1.BatchTerm{
		{Name: string(node.TermCapacity), Amount: k.reportQuantity(share), Text: "what is divided"},
		{Name: string(node.TermNode), Amount: k.reportQuantity(-system), Text: "used by the system"},
		{Name: string(node.LS), Amount: k.reportQuantity(-others), Text: "used by LS"},
	}}
	if v < 0 {
		a.Terms = append(a.Terms, v1alpha1.BatchTerm{Name: string(node.TermFloor), Amount: k.reportQuantity(-v)})
		v = 0
	}
	a.Amount, a.Formula = k.reportQuantity(v), k.reportQuantity(v)
	return a
}

// batchOf returns the report of a node with 16 CPUs and 64 GiB. Other work on
// this node uses the given amounts.
func batchOf(milli, gib int64) *v1alpha1.Batch {
	return &v1alpha1.Batch{CPU: promise(cpu, 9600, 400, milli), Memory: promise(memory, percent(64<<30, 65), 1<<30, gib<<30)}
}

// caseOf returns a case for a node without batch resources. A good report of
// the node has just arrived.
func caseOf(n *corev1.Node, b *v1alpha1.Batch) Case {
	return Case{At: epoch, Rules: colocationDefaults(), Node: factsOf(n), Report: Sighting{Batch: b, Seen: epoch, Fresh: true}}
}

func amounts(v [kinds]node.Maybe[int64]) string {
	var parts []string
	for k := range kinds {
		if n, has := v[k].Value(); has {
			parts = append(parts, k.printAmount(n))
		} else {
			parts = append(parts, "none")
		}
	}
	return strings.Join(parts, " ")
}

func TestReportedAmountsArePublishedUnlessAReasonForbidsIt(t *testing.T) {
	const mem = 64<<30*65/100 - 5<<30 // the memory that batchOf(_, 4) leaves
	ago := func(d time.Duration) func(*Case) { return func(c *Case) { c.Memory.Wrote = epoch.Add(-d) } }
	for name, c := range map[string]struct {
		node   *corev1.Node
		batch  *v1alpha1.Batch
		change func(*Case)
		want   string
		state  State
		reason string
		quiet  bool // the test expects no write
		again  time.Duration
	}{
		"the first report is published at once": {
			node: machineOf(16, 64), batch: batchOf(4000, 4), want: "5200m 37478Mi", state: Published, reason: "as the agent reports", again: 15 * time.Minute,
		},
		"equal amounts are not written again": {
			node: giveBatch(machineOf(16, 64), 5200, mem), batch: batchOf(4000, 4), want: "5200m 37478Mi", state: Published, quiet: true, again: 15 * time.Minute,
		},
		"much less is written at once": {
			node: giveBatch(machineOf(16, 64), 5200, mem), batch: batchOf(6000, 4), change: ago(time.Second), want: "3200m 37478Mi", state: Published, again: 15 * time.Minute,
		},
		"a little less waits for the pause": {
			node: giveBatch(machineOf(16, 64), 5200, mem), batch: batchOf(4100, 4), change: ago(4 * time.Second), want: "5200m 37478Mi", state: Published, quiet: true, again: 6 * time.Second,
		},
		"an amount of 0 is written at once": {
			node: giveBatch(machineOf(16, 64), 100, mem), batch: batchOf(9500, 4), change: ago(time.Second), want: "0m 37478Mi", state: Published, again: 15 * time.Minute,
		},
		"more waits for the pause": {
			node: giveBatch(machineOf(16, 64), 5200, mem), batch: batchOf(2000, 4), change: ago(3 * time.Second), want: "5200m 37478Mi",
			state: Waiting, reason: "more is promised at most every 10s", quiet: true, again: 7 * time.Second,
		},
		"a little more waits until it is due": {
			node: giveBatch(machineOf(16, 64), 5200, mem), batch: batchOf(3900, 4), change: ago(time.Minute), want: "5200m 37478Mi",
			state: Waiting, reason: "more is promised when it is 10% more, or 5m0s after the last update", quiet: true, again: 4 * time.Minute,
		},
		"a little more is due after updateTimeThresholdSeconds": {
			node: giveBatch(machineOf(16, 64), 5200, mem), batch: batchOf(3900, 4), change: ago(5 * time.Minute), want: "5300m 37478Mi", state: Published, again: 15 * time.Minute,
		},
		"a write includes all changes": {
			node: giveBatch(machineOf(16, 64), 5200, mem), batch: batchOf(1000, 3), change: ago(time.Minute), want: "8200m 38502Mi", state: Published, again: 15 * time.Minute,
		},
		"a report that is too old takes the resources away": {
			node: giveBatch(machineOf(16, 64), 5200, mem), batch: batchOf(4000, 4), change: func(c *Case) { c.Report.Seen = epoch.Add(-15 * time.Minute) },
			want: "none none", state: Stale, reason: "no good report for 15m0s (degradeTimeMinutes)",
		},
		"no report yet, no resources": {
			node: machineOf(16, 64), want: "none none", state: Unreported, quiet: true,
		},
		"the report is gone, the amounts stay": {
			node: giveBatch(machineOf(16, 64), 5200, mem), want: "5200m 37478Mi", state: Vanished, quiet: true, again: 15 * time.Minute,
			change: func(c *Case) { c.Memory.Good = epoch },
		},
		"a manager starts where the reports are gone": {
			node: giveBatch(machineOf(16, 64), 5200, mem), want: "5200m 37478Mi", state: Vanished, quiet: true, again: 15 * time.Minute,
		},
		"the report is gone for as long as an agent may be silent": {
			node: giveBatch(machineOf(16, 64), 5200, mem), want: "none none", state: Unreported,
			change: func(c *Case) { c.Memory.Good = epoch.Add(-15 * time.Minute) },
		},
		"the report is gone, and the owner lowers the threshold": {
			node: giveBatch(machineOf(16, 64), 5200, mem), want: "3200m 37478Mi", state: Vanished, again: 15 * time.Minute,
			change: func(c *Case) { c.Memory.Good, c.Rules.CPU.ThresholdPercent = epoch, 20 },
		},
		"colocation off, no resources": {
			node: giveBatch(machineOf(16, 64), 5200, mem), batch: batchOf(4000, 4), change: func(c *Case) { c.Rules.Enable = false }, want: "none none", state: Off,
		},
		"a resource that is not reported is removed": {
			node: giveBatch(machineOf(16, 64), 5200, mem), batch: &v1alpha1.Batch{CPU: batchOf(4000, 4).CPU}, want: "5200m none", state: Published, again: 15 * time.Minute,
		},
		"the last report of a removed agent takes the resources away": {
			node: giveBatch(machineOf(16, 64), 5200, mem), batch: new(v1alpha1.Batch), want: "none none", state: Published, again: 15 * time.Minute,
		},
		"a report of unknown age raises nothing": {
			node: giveBatch(machineOf(16, 64), 3000, mem), batch: batchOf(4000, 5), change: func(c *Case) { c.Report.Fresh = false },
			want: "3000m 36454Mi", state: Doubtful, reason: "more is promised when the agent reports again: the age of its report is not known", again: 15 * time.Minute,
		},
		"a report of unknown age gives a new node nothing": {
			node: machineOf(16, 64), batch: batchOf(4000, 4), change: func(c *Case) { c.Report.Fresh = false }, want: "none none", state: Doubtful, quiet: true, again: 15 * time.Minute,
		},
		"terms that do not add up are refused, what was good stays": {
			node: giveBatch(machineOf(16, 64), 3000, mem), batch: func() *v1alpha1.Batch {
				b := batchOf(4000, 4)
				b.CPU.Amount = cpu.reportQuantity(9000)
				return b
			}(),
			want: "3000m 37478Mi", state: Refused, reason: "the report is refused: batch-cpu: the terms add up to 5200m, the amount is 9000m", quiet: true, again: 15 * time.Minute,
		},
		"more than there is, is refused": {
			node: machineOf(4, 64), batch: batchOf(4000, 4), want: "none none", state: Refused,
			reason: "the report is refused: batch-cpu: 5200m are reported of a node that has 4000m", quiet: true, again: 15 * time.Minute,
		},
		"refused for too long, nothing is promised": {
			node: giveBatch(machineOf(4, 64), 2000, mem), batch: batchOf(4000, 4), change: func(c *Case) { c.Memory.Good = epoch.Add(-15 * time.Minute) },
			want: "none none", state: Stale,
		},
		"the reservation of the kubelet is subtracted": { // 5200 = 9600 - 400 - 4000; the kubelet reserves 3000, and the agent assumed 400
			node: func() *corev1.Node {
				n := machineOf(16, 64)
				n.Status.Allocatable[corev1.ResourceCPU] = resource.MustParse("13")
				return n
			}(), batch: batchOf(4000, 4),
			want: "2600m 37478Mi", state: Bounded, reason: "batch-cpu: 3000m are reserved for the node, more than the agent counts", again: 15 * time.Minute,
		},
		"the reservation of an annotation is subtracted": {
			node: machineOf(16, 64), batch: batchOf(4000, 4), change: func(c *Case) { c.Rules.ReservedCPU, c.Rules.ReservedMemory = 2000, 3<<30 },
			want: "3600m 35430Mi", state: Bounded, reason: "batch-cpu: 2000m are reserved for the node, more than the agent counts; batch-memory: 3072Mi are reserved for the node, more than the agent counts", again: 15 * time.Minute,
		},
		"allocations of other schedulers are subtracted": {
			node: noted(machineOf(16, 64), thirdPartyKey, `{"allocations":[{"name":"yarn","priority":"koord-batch","resources":{"kubernetes.io/batch-cpu":"1200","kubernetes.io/batch-memory":"1Gi"}}]}`),
			want: "4000m 36454Mi", batch: batchOf(4000, 4), state: Bounded, again: 15 * time.Minute,
			reason: "batch-cpu: 1200m of it are given away by others (thirdPartyAllocations); batch-memory: 1024Mi of it are given away by others (thirdPartyAllocations)",
		},
		"an annotation that cannot be read raises nothing": {
			node: noted(giveBatch(machineOf(16, 64), 3000, mem), thirdPartyKey, `{"allocations":[{"resources":{"kubernetes.io/batch-cpu":"1e2147483647"}}]}`), batch: batchOf(4000, 4), want: "3000m 37478Mi", state: Doubtful, again: 15 * time.Minute,
			reason: "more is promised when all is known: annotation node.koordinator.sh/thirdPartyAllocations: batch-cpu: \"1e2147483647\": want a quantity such as 1500 or 2Gi",
		},
		"the owner's lower threshold holds before the agent knows it": { // 40% of 16 CPUs
			node: giveBatch(machineOf(16, 64), 5200, mem), batch: batchOf(4000, 4), change: func(c *Case) { c.Rules.CPU.ThresholdPercent = 40 },
			want: "2000m 37478Mi", state: Bounded, reason: "batch-cpu: the owner's threshold is 40% now, the agent goes by another", again: 15 * time.Minute,
		},
		"no more than the owner's limit": {
			node: machineOf(16, 64), batch: batchOf(4000, 4), change: func(c *Case) { c.Rules.Memory.LimitPercent = node.Some[unit.Percent](25) },
			want: "5200m 16384Mi", state: Bounded, reason: "batch-memory: no more than 16384Mi by the owner's thresholds", again: 15 * time.Minute,
		},
		"the owner's limit holds for what was promised before": {
			node: giveBatch(machineOf(4, 64), 3000, mem), batch: batchOf(4000, 4), want: "2400m 37478Mi", state: Refused, again: 15 * time.Minute,
		},
		"requests of running pods stay": {
			node: giveBatch(machineOf(16, 64), 5200, mem), batch: addRunning(batchOf(8000, 4), 2500, 0), want: "2500m 37478Mi", state: Held, again: 15 * time.Minute,
			reason: "batch-cpu: running pods request 2500m: with less, a kubelet that restarts ends them",
		},
		"requests of running pods stay although the formula gives 0": {
			node: giveBatch(machineOf(16, 64), 2500, 1<<30), batch: addRunning(batchOf(9600, 41), 2500, 1<<30), want: "2500m 1024Mi", state: Held, quiet: true, again: 15 * time.Minute,
		},
		"running pods that request more than there is keep what there is": {
			node: giveBatch(machineOf(16, 64), 2500, mem), batch: addRunning(batchOf(8000, 4), 99_000, 0), want: "2500m 37478Mi", state: Held, quiet: true, again: 15 * time.Minute,
			reason: "batch-cpu: running pods request 99000m: with less, a kubelet that restarts ends them",
		},
		"requests of running pods do not raise the amount of a node without batch resources": {
			node: machineOf(16, 64), batch: addRunning(batchOf(8000, 4), 2500, 0), want: "1200m 37478Mi", state: Published, again: 15 * time.Minute,
		},
		"running pods keep what they request from an owner's lower threshold": {
			node: giveBatch(machineOf(16, 64), 5200, mem), batch: addRunning(batchOf(4000, 4), 3000, 0), change: func(c *Case) { c.Rules.CPU.ThresholdPercent = 40 },
			want: "3000m 37478Mi", state: Held, again: 15 * time.Minute,
			reason: "batch-cpu: the owner's threshold is 40% now, the agent goes by another; batch-cpu: running pods request 3000m: with less, a kubelet that restarts ends them",
		},
		"running pods keep their requests from other schedulers": {
			node: noted(giveBatch(machineOf(16, 64), 5200, mem), thirdPartyKey, `{"allocations":[{"resources":{"kubernetes.io/batch-cpu":"3000"}}]}`), batch: addRunning(batchOf(4000, 4), 3000, 0),
			want: "3000m 37478Mi", state: Held, again: 15 * time.Minute,
		},
		"running pods keep their requests while an agent starts": {
			node: giveBatch(machineOf(16, 64), 5200, mem), batch: addRunning(startingReport(1000), 3000, 0), want: "3000m 37478Mi", state: Starting, again: 15 * time.Minute,
			reason: "the agent has just started: its last amounts stay until it has measured; batch-cpu: running pods request 3000m: with less, a kubelet that restarts ends them",
		},
		"running pods keep their requests with a report of unknown age": {
			node: giveBatch(machineOf(16, 64), 5200, mem), batch: addRunning(batchOf(8000, 4), 3000, 0), change: func(c *Case) { c.Report.Fresh = false },
			want: "3000m 37478Mi", state: Doubtful, again: 15 * time.Minute,
		},
		"running pods keep their requests if a lower threshold makes the report invalid": {
			node: giveBatch(machineOf(4, 64), 5200, mem), batch: addRunning(batchOf(4000, 4), 3000, 0), change: func(c *Case) { c.Rules.CPU.ThresholdPercent = 0 },
			want: "3000m 37478Mi", state: Refused, again: 15 * time.Minute,
			reason: "the report is refused: batch-cpu: 5200m are reported of a node that has 4000m; batch-cpu: running pods request 3000m: with less, a kubelet that restarts ends them",
		},
		"running pods keep nothing where colocation is off": {
			node: giveBatch(machineOf(16, 64), 5200, mem), batch: addRunning(batchOf(8000, 4), 3000, 0), change: func(c *Case) { c.Rules.Enable = false }, want: "none none", state: Off,
		},
		"running pods keep nothing if the report is too old": {
			node: giveBatch(machineOf(16, 64), 5200, mem), batch: addRunning(batchOf(8000, 4), 3000, 0), change: func(c *Case) { c.Report.Seen = epoch.Add(-15 * time.Minute) }, want: "none none", state: Stale,
		},
		"half a write is completed": {
			node: func() *corev1.Node {
				n := giveBatch(machineOf(16, 64), 5200, mem)
				delete(n.Status.Capacity, kube.BatchMemory)
				return n
			}(), batch: batchOf(4000, 4), want: "5200m 37478Mi", state: Published, again: 15 * time.Minute,
		},
	} {
		t.Run(name, func(t *testing.T) {
			given := caseOf(c.node, c.batch)
			if c.change != nil {
				c.change(&given)
			}
			v := Decide(given)
			if got := amounts(v.Want); got != c.want || v.State != c.state || (c.reason != "" && v.Reason != c.reason) {
				t.Errorf("%s %s: %s\nwant %s %s: %s", got, v.State, v.Reason, c.want, c.state, c.reason)
			}
			if v.Write == c.quiet {
				t.Errorf("write is %v", v.Write)
			}
			if v.Again != c.again {
				t.Errorf("next decision after %v, want %v", v.Again, c.again)
			}
		})
	}
}

// addRunning adds the requests of running pods to a report.
func addRunning(b *v1alpha1.Batch, milli, bytes int64) *v1alpha1.Batch {
	c, m := cpu.reportQuantity(milli), memory.reportQuantity(bytes)
	b.CPU.Requested, b.Memory.Requested = &c, &m
	return b
}

// startingReport returns the report of an agent that has measured, but still
// waits before it reports its first amount.
func startingReport(milli int64) *v1alpha1.Batch {
	b := batchOf(0, 4)
	for k, a := range [kinds]*v1alpha1.BatchAmount{b.CPU, b.Memory} {
		*a = v1alpha1.BatchAmount{Policy: "usage", Held: "more is promised every 1m0s", Formula: a.Formula, Amount: kind(k).reportQuantity(0)}
	}
	b.CPU.Formula = cpu.reportQuantity(milli)
	return b
}

func noted(n *corev1.Node, key, value string) *corev1.Node {
	n.Annotations = map[string]string{key: value}
	return n
}

func TestOriginSaysWhatThereWouldBeWithoutOthers(t *testing.T) {
	n := noted(machineOf(16, 64), thirdPartyKey, `{"allocations":[{"resources":{"kubernetes.io/batch-cpu":"6k"}}]}`)
	v := Decide(caseOf(n, batchOf(4000, 4)))
	if want := `{"resources":{"kubernetes.io/batch-cpu":"5200","kubernetes.io/batch-memory":"39298950758"}}`; v.Origin != want {
		t.Errorf("origin is %s\nwant %s", v.Origin, want)
	}
	n = noted(machineOf(16, 64), originKey, v.Origin)
	if v := Decide(caseOf(n, batchOf(4000, 4))); v.Origin != "" || !v.Write {
		t.Errorf("the annotation outlives the others: %q", v.Origin)
	}
}

// TestOthersGiveWayToRunningPods checks that the amount held for running pods
// is missing in the annotation for other schedulers. A held amount must not
// cause a write at each report.
func TestOthersGiveWayToRunningPods(t *testing.T) {
	n := noted(giveBatch(machineOf(16, 64), 3000, 40<<30), thirdPartyKey, `{"allocations":[{"resources":{"kubernetes.io/batch-cpu":"3000"}}]}`)
	given := caseOf(n, addRunning(batchOf(4000, 4), 3000, 0))
	v := Decide(given)
	if want := `{"resources":{"kubernetes.io/batch-cpu":"5200","kubernetes.io/batch-memory":"39298950758"}}`; v.Origin != want || !v.Write {
		t.Errorf("origin is %s, want %s; write %v", v.Origin, want, v.Write)
	}
	giveBatch(n, v.Want[cpu].Or(0), v.Want[memory].Or(0))
	n.Annotations[originKey] = v.Origin
	given = caseOf(n, addRunning(batchOf(4100, 4), 3000, 0))
	given.Memory.Wrote = epoch.Add(-4 * time.Second)
	if v := Decide(given); v.Write || v.Again != 6*time.Second {
		t.Errorf("another report: write %v, next decision after %v: %s", v.Write, v.Again, v.Origin)
	}
	given.Memory.Wrote = epoch.Add(-Pause)
	if v := Decide(given); !v.Write || !strings.Contains(v.Origin, `batch-cpu":"5100"`) {
		t.Errorf("after the pause: write %v, origin %s", v.Write, v.Origin)
	}
}

func TestGarbageIsRefusedWithTheValue(t *testing.T) {
	for want, change := range map[string]func(*v1alpha1.BatchAmount){
		"batch-cpu: amount -1m is below 0": func(a *v1alpha1.BatchAmount) {
			a.Amount, a.Terms = resource.MustParse("-1m"), []v1alpha1.BatchTerm{{Name: "capacity", Amount: resource.MustParse("-1m")}}
		},
		"batch-cpu: the terms add up to 5200m, the amount is 5201m":              func(a *v1alpha1.BatchAmount) { a.Amount = resource.MustParse("5201m") },
		"batch-cpu: the terms add up to 0m, the amount is 5200m":                 func(a *v1alpha1.BatchAmount) { a.Terms = nil },
		`batch-cpu: policy is "guess", want usage, request or maxUsageRequest`:   func(a *v1alpha1.BatchAmount) { a.Policy = "guess" },
		"batch-cpu: amount: 5200001u is not a whole number of the smallest unit": func(a *v1alpha1.BatchAmount) { a.Amount = resource.MustParse("5200001u") },
		"batch-cpu: amount: 9E is beyond what can be counted":                    func(a *v1alpha1.BatchAmount) { a.Amount = resource.MustParse("9E") },
		`batch-cpu: term "LS": -9E is beyond what can be counted`:                func(a *v1alpha1.BatchAmount) { a.Terms[2].Amount = resource.MustParse("-9E") },
		"batch-cpu: the terms add up to more than can be counted": func(a *v1alpha1.BatchAmount) {
			a.Terms[0].Amount, a.Terms[1].Amount = *resource.NewScaledQuantity(quantity.Max-1, -3), *resource.NewScaledQuantity(quantity.Max-1, -3)
		},
		"batch-cpu: there are 65 terms, more than 64":                         func(a *v1alpha1.BatchAmount) { a.Terms = make([]v1alpha1.BatchTerm, 65) },
		"batch-cpu: requested -1m is below 0":                                 func(a *v1alpha1.BatchAmount) { a.Requested = resource.NewMilliQuantity(-1, resource.DecimalSI) },
		"batch-cpu: requested: 9E is beyond what can be counted":              func(a *v1alpha1.BatchAmount) { a.Requested = resource.NewQuantity(9e18, resource.DecimalSI) },
		"batch-cpu: requested: 1u is not a whole number of the smallest unit": func(a *v1alpha1.BatchAmount) { a.Requested = resource.NewScaledQuantity(1, resource.Micro) },
		"batch-cpu: a reason has more than 1024 bytes":                        func(a *v1alpha1.BatchAmount) { a.Held = strings.Repeat("a", 1025) },
	} {
		b := batchOf(4000, 4)
		change(b.CPU)
		v := Decide(caseOf(machineOf(16, 64), b))
		if v.State != Refused || v.Reason != "the report is refused: "+want || v.Want != noAmounts {
			t.Errorf("%s %s: %s\nwant %s", amounts(v.Want), v.State, v.Reason, want)
		}
	}
}

// TestAnyHistoryKeepsThePromises calls Decide with random reports, pauses,
// invalid reports, and changes of the node and of the settings. After each
// call, it checks the rules in the function brokenRule.
func TestAnyHistoryKeepsThePromises(t *testing.T) {
	rnd := rand.New(rand.NewPCG(31, 32))
	for range 300 {
		s := Case{At: epoch, Rules: colocationDefaults(), Report: Sighting{Seen: epoch}}
		s.Rules.CPU.ThresholdPercent, s.Rules.Memory.ThresholdPercent = unit.Percent(rnd.IntN(101)), unit.Percent(rnd.IntN(101))
		n := machineOf(1+rnd.Int64N(64), 1+rnd.Int64N(256))
		var log []string
		var raised time.Time
		for range 200 {
			what := history(rnd, &s, n)
			s.Node = factsOf(n)
			before := s.Node.Present
			v := Decide(s)
			log = append(log, fmt.Sprintf("%v %s: %s -> %s (%s) write %v again %v", s.At.Sub(epoch), what, amounts(before), amounts(v.Want), v.State, v.Write, v.Again))
			if fault := brokenRule(s, v, &raised); fault != "" {
				t.Fatalf("%s\n%s", fault, strings.Join(log[max(0, len(log)-8):], "\n"))
			}
			s.Memory = v.Memory
			if !v.Write {
				continue
			}
			s.Memory.wrote(s, v)
			for k := range kinds {
				for _, list := range []corev1.ResourceList{n.Status.Capacity, n.Status.Allocatable} {
					if amount, has := v.Want[k].Value(); has {
						list[k.batchName()] = k.quantity(amount)
					} else {
						delete(list, k.batchName())
					}
				}
			}
			s.Node = factsOf(n)
			if again := Decide(s); again.Write {
				t.Fatalf("the same amounts are written again: %s -> %s\n%s", amounts(s.Node.Present), amounts(again.Want), log[len(log)-1])
			}
		}
	}
}

// history makes a random change to a node, its report or the settings, and
// returns its description.
func history(rnd *rand.Rand, s *Case, n *corev1.Node) string {
	s.At = s.At.Add(time.Duration(rnd.Int64N(int64(12 * time.Second))))
	report := func(b *v1alpha1.Batch) {
		s.Report = Sighting{Batch: b, Seen: s.At, Fresh: rnd.IntN(20) > 0}
	}
	f := factsOf(n)
	some := func(k kind) *v1alpha1.BatchAmount {
		c := f.Capacity[k]
		a := promise(k, percent(c, k.reclaim(s.Rules).ThresholdPercent), rnd.Int64N(1+c/8), rnd.Int64N(1+c))
		if rnd.IntN(4) > 0 { // an old agent does not report requests
			requested := k.reportQuantity(rnd.Int64N(1 + c))
			a.Requested = &requested
		}
		return a
	}
	switch rnd.IntN(12) {
	case 0:
		s.At = s.At.Add(time.Duration(rnd.Int64N(int64(20 * time.Minute))))
		return "silence"
	case 1:
		report(&v1alpha1.Batch{CPU: promise(cpu, 3*f.Capacity[cpu], 0, 0), Memory: some(memory)})
		return "boast"
	case 2:
		b := &v1alpha1.Batch{CPU: some(cpu), Memory: some(memory)}
		b.Memory.Terms = b.Memory.Terms[1:]
		report(b)
		return "garbage"
	case 3:
		s.Rules.Enable = rnd.IntN(3) > 0
		return "switch"
	case 4:
		s.Rules.ReservedCPU = unit.MilliCPU(rnd.IntN(2) * rnd.IntN(1+int(f.Capacity[cpu])))
		return "reservation"
	case 5:
		s.Report = Sighting{}
		return "no report"
	}
	report(&v1alpha1.Batch{CPU: some(cpu), Memory: some(memory)})
	return "report"
}

// brokenRule describes the rule that a verdict breaks. It returns "" for a
// correct verdict.
func brokenRule(c Case, v Verdict, raised *time.Time) string {
	up := false
	for k := range kinds {
		want, has := v.Want[k].Value()
		present, had := c.Node.Present[k].Value()
		up = up || (has && (!had || want > present))
		all, err := [kinds]claim{}, error(nil)
		if c.Report.Batch != nil {
			all, err = claims(*c.Report.Batch)
		}
		old := c.At.Sub(c.Report.Seen) >= c.Rules.DegradeAfter
		floor := int64(0)
		switch v.State {
		case Published, Bounded, Held, Waiting, Starting, Doubtful, Refused:
			floor = min(all[k].requested, present) // 0 if the report cannot be read
		}
		switch most := max(floor, percent(c.Node.Capacity[k], k.reclaim(c.Rules).ThresholdPercent)-k.reservedAmount(c)); {
		case floor > 0 && all[k].promised && want < floor:
			return fmt.Sprintf("%v is %s, running pods have %s", k, k.printAmount(want), k.printAmount(floor))
		case has && (want < 0 || want > most && (want != present || c.At.Sub(c.Memory.Wrote) >= Pause || want-most > want/10)):
			return fmt.Sprintf("%v is %s, the owner allows up to %s", k, k.printAmount(want), k.printAmount(most))
		case has && v.State == Vanished && (!had || want > present || !v.Memory.Good.IsZero() && c.At.Sub(v.Memory.Good) >= c.Rules.DegradeAfter):
			return fmt.Sprintf("%v is promised too long without a report", k)
		case has && (!c.Rules.Enable || v.State != Vanished && (c.Report.Batch == nil || old)):
			return fmt.Sprintf("%v is promised without a good report", k)
		case up && (err != nil || !c.Report.Fresh):
			return fmt.Sprintf("%v rises by a bad report: %v", k, err)
		case up && want > present && want > all[k].amount:
			return fmt.Sprintf("%v is more than is reported: %s", k, k.printAmount(all[k].amount))
		case err == nil && has && had && (v.State == Published || v.State == Held) && max(floor, all[k].amount) < present-present/10-1 && want > max(floor, all[k].amount):
			return fmt.Sprintf("%v falls to %s only, %s are reported", k, k.printAmount(want), k.printAmount(all[k].amount))
		}
	}
	if up {
		if d := c.At.Sub(*raised); d < Pause {
			return fmt.Sprintf("raised %v after it was raised", d)
		}
		*raised = c.At
	}
	if !v.Write && v.Want != c.Node.Present {
		return "the wanted amounts are not written"
	}
	return ""
}
