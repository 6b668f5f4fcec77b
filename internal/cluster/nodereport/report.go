// Package nodereport tells the cluster what the agent of a node found, decided
// and can do: it makes a NodeReport of each tick, decides which of them are
// worth sending, and sends those.
package nodereport

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tenon.sh/tenon/api/v1alpha1"
	"tenon.sh/tenon/internal/decide/policy"
	"tenon.sh/tenon/internal/decide/tick"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// A View is the input of a report.
type View struct {
	Tick tick.Tick
	// Policy is the configuration of the policies in that tick.
	Policy policy.Config
	// Agent is the agent's version, and Run names this run of it.
	Agent, Run string
	// Pods is what is known of the node's pods.
	Pods Pods
	// Config is where the configuration stands.
	Config Config
	// NRI is by which runtime containers have their values before they start.
	NRI Means
}

// Means is by what something is done, or why it is not, or not in full.
type Means struct{ By, Why string }

// Pods is what is known of the pods of the node.
type Pods struct {
	// From is their source, kubelet or API server; empty: none yet.
	From string
	At   time.Time
	// Trouble says why the source does not answer; empty: it answers.
	Trouble string
	// Unmanaged counts those that are left alone.
	Unmanaged int
	// BatchCPU and BatchMemory are what those that run request of batch
	// resources, as a kubelet counts that starts and admits them anew, but for
	// those that came when the others requested all that there is.
	BatchCPU    unit.MilliCPU
	BatchMemory unit.Bytes
	// Remarks are about single pods.
	Remarks []string
}

// Config is where the configuration of the node stands.
type Config struct {
	// From names it: "ConfigMap koordinator-system/slo-controller-config".
	From string
	// Faults are those of its present text; where there are any, the values
	// from before hold. Notices are what it asks for and is not done.
	Faults, Notices []string
	// Trouble says why it is not read any more; empty: it is.
	Trouble string
}

// unmanaged is how NodeReportStatus.Pods counts pods that are left alone.
const unmanaged = "Unmanaged"

// Status makes the report of a view, but for the use of the node, which a Meter
// knows. Before are the conditions of the report
// before it: those that are the same keep the time since when they are.
func Status(v View, before []metav1.Condition) v1alpha1.NodeReportStatus {
	s := v.Tick.Snapshot
	status := v1alpha1.NodeReportStatus{
		Reported:  metav1.NewMicroTime(s.At),
		Agent:     v.Agent,
		Run:       v.Run,
		Pods:      countPods(s.Workloads, v.Pods.Unmanaged),
		Isolation: string(v.Tick.Selection.Mechanism),
		Means:     meansOf(v),
		Batch:     v1alpha1.Batch{CPU: amountOf(v.Tick.Batch.CPU, v.Pods.BatchCPU, cpuQuantity), Memory: amountOf(v.Tick.Batch.Memory, v.Pods.BatchMemory, memoryQuantity)},
	}
	status.Conditions = since(conditionsOf(v), before, s.At)
	return status
}

func countPods(all []node.Workload, left int) map[string]int32 {
	counts := map[string]int32{}
	for _, w := range all {
		counts[string(w.Class)]++
	}
	if left > 0 {
		counts[unmanaged] = int32(left)
	}
	return counts
}

// amountOf is nil for what is not promised at all.
func amountOf[T unit.MilliCPU | unit.Bytes](a node.Amount[T], requested T, quantity func(T) resource.Quantity) *v1alpha1.BatchAmount {
	if a.Policy == "" {
		return nil
	}
	running := quantity(requested)
	b := &v1alpha1.BatchAmount{
		Amount: quantity(a.Value), Policy: a.Policy, Over: metav1.Duration{Duration: a.Over},
		Formula: quantity(a.Formula), Held: a.Held, Degraded: a.Degraded, Requested: &running,
	}
	for _, t := range a.Terms {
		b.Terms = append(b.Terms, v1alpha1.BatchTerm{Name: string(t.Name), Amount: quantity(t.Amount), Text: t.Text})
	}
	return b
}

func cpuQuantity(c unit.MilliCPU) resource.Quantity {
	return *resource.NewMilliQuantity(int64(c), resource.DecimalSI)
}

func memoryQuantity(b unit.Bytes) resource.Quantity {
	return *resource.NewQuantity(int64(b), resource.BinarySI)
}

// since gives each condition the time of its last change, and sorts them.
func since(now, before []metav1.Condition, at time.Time) []metav1.Condition {
	known := map[string]metav1.Condition{}
	for _, c := range before {
		known[c.Type] = c
	}
	for i := range now {
		c := &now[i]
		c.LastTransitionTime = metav1.NewTime(at.Truncate(time.Second))
		if b, had := known[c.Type]; had && b.Status == c.Status {
			c.LastTransitionTime = b.LastTransitionTime
		}
		c.Message = clip(c.Message)
	}
	slices.SortFunc(now, func(a, b metav1.Condition) int { return compare(a.Type, b.Type) })
	return now
}

func compare(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// mostMessage bounds the message of a condition, in bytes: the API allows 32768.
const mostMessage = 1024

func clip(s string) string {
	if len(s) <= mostMessage {
		return s
	}
	return strings.ToValidUTF8(s[:mostMessage-4], "") + " ..."
}

// list joins the first of some phrases, and says how many more there are.
func list(all []string, most int) string {
	text := ""
	for i, s := range all {
		if i == most {
			return text + fmt.Sprintf("; and %d more", len(all)-most)
		}
		if i > 0 {
			text += "; "
		}
		text += s
	}
	return text
}

// samePods reports whether two counts are the same.
func samePods(a, b map[string]int32) bool { return maps.Equal(a, b) }
