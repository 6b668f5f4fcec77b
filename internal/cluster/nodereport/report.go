// Package nodereport makes the NodeReport of a node and sends it to the API
// server. It makes a report from each tick of the agent, and decides which
// reports to send.
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
	"tenon.sh/tenon/internal/cluster/outlookreport"
	"tenon.sh/tenon/internal/cluster/quantity"
	"tenon.sh/tenon/internal/decide/policy"
	"tenon.sh/tenon/internal/decide/tick"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// A View contains the inputs of Status.
type View struct {
	Tick tick.Tick
	// Policy is the configuration of the policies in the tick.
	Policy policy.Config
	// Agent is the version of the agent. Run identifies its process.
	Agent, Run string
	// Pods is the state of the list of pods.
	Pods Pods
	// Config is the state of the configuration.
	Config Config
	// NRI is the mechanism that gives containers their limits before they start.
	NRI Means
	// Troubles are the troubles of the agent itself, such as a damaged journal.
	Troubles []string
	// CPUManager names another component that writes the CPUs of pods: static
	// (the kubelet's policy), dra (a driver), or none (empty).
	CPUManager string
}

// Means is a mechanism (By). Why is the reason if the mechanism is missing or
// incomplete. Otherwise it is empty.
type Means struct{ By, Why string }

// Pods is the state of the list of pods of the node.
type Pods struct {
	// From is the source of the list: kubelet or API server. It is empty without a
	// list.
	From string
	At   time.Time
	// Trouble is the error of the source, or empty if the source answers.
	Trouble string
	// ByClass is the number of pods with a cgroup. Workloads that are no pods, which
	// the rules of the file of tenond match, do not count. Unmanaged is the number
	// of pods without a cgroup.
	ByClass   map[node.Class]int
	Unmanaged int
	// Containers says where the cgroups of the running containers are.
	Containers Containers
	// BatchCPU and BatchMemory are the batch resources that running pods request.
	// A kubelet that restarts and admits these pods again counts the same amounts:
	// a pod does not count if earlier pods already request the whole amount.
	BatchCPU    unit.MilliCPU
	BatchMemory unit.Bytes
	// Remarks are messages about single pods.
	Remarks []string
}

// Containers counts the running containers of the node by the place of their
// cgroup. They are in the cgroup of their pod unless the kubelet and the
// container runtime have different cgroup drivers or roots.
type Containers struct {
	Running int // according to the kubelet
	Inside  int // in the cgroup of their pod
	// Outside is the number of those that Tenon has found elsewhere. OtherDriver is
	// the number of those whose pod has no cgroup by the driver of the kubelet, and
	// has one by the other driver. Example is the cgroup of one of either.
	Outside     int
	OtherDriver int
	Example     node.CgroupPath
	// Expected is the cgroup of a pod, or empty if no container runs.
	Expected node.CgroupPath
}

// Config is the state of the configuration of the node.
type Config struct {
	// From names the source, such as "ConfigMap
	// koordinator-system/slo-controller-config".
	From string
	// Faults are the errors in the present text. With a fault, the last valid text
	// stays in force. Ignored are errors in other places, such as the annotations
	// of the node, where a value with an error counts as missing. Notices name
	// settings that Tenon ignores.
	Faults, Ignored, Notices []string
	// Unlikely means that a setting counts, but is probably not meant. Notices
	// names it first.
	Unlikely bool
	// Trouble is the error that prevents reading the source now, or empty.
	Trouble string
	Missing Missing
}

// Missing says since when the ConfigMap does not exist. The zero Missing means
// that it exists, or that this is not known.
type Missing struct {
	Is bool
	// Lost means that the ConfigMap existed before. Its last content holds until
	// Until. If that is zero, the file of tenond applies.
	Lost         bool
	Since, Until time.Time
}

// unmanaged is the key in NodeReportStatus.Pods for pods that Tenon does not
// manage.
const unmanaged = "Unmanaged"

// Status makes the report of a view. It does not contain the resource usage of
// the node, which a Meter adds. before has the conditions of the last report;
// an unchanged condition keeps its time of change.
func Status(v View, before []metav1.Condition) v1alpha1.NodeReportStatus {
	status := v1alpha1.NodeReportStatus{
		Reported:  metav1.NewMicroTime(v.Tick.Begun),
		Agent:     v.Agent,
		Run:       v.Run,
		Pods:      countPods(v.Pods),
		Isolation: string(v.Tick.Selection.Mechanism),
		Means:     meansOf(v),
		Batch:     v1alpha1.Batch{CPU: amountOf(v.Tick.Batch.CPU, v.Pods.BatchCPU, quantity.OfCPU), Memory: amountOf(v.Tick.Batch.Memory, v.Pods.BatchMemory, quantity.OfMemory)},
	}
	status.Promises = promisesOf(v.Tick.Promises)
	if o := v.Tick.Outlook; o != nil {
		status.Outlook = outlookreport.Convert(*o)
	}
	status.CPUs = cpusOf(v)
	if v.Tick.Shadow != nil {
		observes(v.Tick.Shadow, &status)
	}
	status.Objectives = objectivesOf(v)
	status.Trials = trialsOf(v.Tick.Trials)
	status.Conditions = setChangeTimes(conditionsOf(v), before, v.Tick.Begun)
	return status
}

// observes moves what holds for the shadow alone out of the places where the manager and
// the scheduler look: no pod may request batch resources of the node or hold its CPUs.
func observes(s *tick.Shadow, status *v1alpha1.NodeReportStatus) {
	shadow := &v1alpha1.Shadow{Observes: true, Batch: status.Batch, Promises: status.Promises}
	for owner, n := range s.Total {
		shadow.Steps = append(shadow.Steps, v1alpha1.ShadowSteps{Policy: owner.String(), Count: n})
	}
	slices.SortFunc(shadow.Steps, func(a, b v1alpha1.ShadowSteps) int { return compare(a.Policy, b.Policy) })
	status.Shadow, status.Batch, status.Promises, status.CPUs, status.Isolation = shadow, v1alpha1.Batch{}, nil, nil, ""
}

func countPods(p Pods) map[string]int32 {
	counts := map[string]int32{}
	for class, n := range p.ByClass {
		counts[string(class)] = int32(n)
	}
	if p.Unmanaged > 0 {
		counts[unmanaged] = int32(p.Unmanaged)
	}
	return counts
}

// amountOf converts an amount, or returns nil if the agent does not report the
// resource.
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

// setChangeTimes sorts the conditions, and sets the time of the last change of
// each condition.
func setChangeTimes(now, before []metav1.Condition, at time.Time) []metav1.Condition {
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

// maxMessage is the maximum length, in bytes, of the message of a condition.
// The API allows 32768.
const maxMessage = 1024

func clip(s string) string {
	if len(s) <= maxMessage {
		return s
	}
	return strings.ToValidUTF8(s[:maxMessage-4], "") + " ..."
}

// list joins the first texts, and appends the number of the texts that it omits.
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

// samePods reports whether two maps of pod counts are equal.
func samePods(a, b map[string]int32) bool { return maps.Equal(a, b) }
