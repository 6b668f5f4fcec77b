// Package past says what to ask a Prometheus server about the past of nodes, and makes
// of the answers what the nodes could have given to batch work. It asks for sums by
// node: the formula of the room (package overcommit) needs no pods.
//
// The series are those of cAdvisor, which the kubelet serves, of kube-state-metrics and
// of node_exporter. A server rarely has all of them, so Sources says which it has.
package past

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"tenon.sh/tenon/internal/decide/overcommit"
	"tenon.sh/tenon/internal/model/unit"
)

// A Source is where the use of a whole node comes from.
type Source string

// The sources, the best one first.
const (
	// CAdvisor has the root cgroup of the node. Many installations drop its series.
	CAdvisor Source = "cadvisor"
	// NodeExporter has the CPUs and the memory of the machine.
	NodeExporter Source = "node-exporter"
	// PodsOnly means that no series says what the node used: what it used beside its
	// pods is not known, and the reservation alone stands for it.
	PodsOnly Source = "pods-only"
)

// Sources are the series that a server has.
type Sources struct {
	// Where has matchers that all series must have, each with a comma at its end, such
	// as those of one cluster of several.
	Where string `json:"where,omitempty"`
	// Label is the label of cAdvisor's series with the name of the node. If it is
	// empty, no series says what pods used, and all use counts as the node's own.
	Label string `json:"label,omitempty"`
	// Containers says that cAdvisor's series tell containers apart. If not, those of
	// whole pods count.
	Containers bool `json:"containers,omitempty"`
	// CPU and Memory say where the use of the whole node comes from.
	CPU    Source `json:"cpu"`
	Memory Source `json:"memory"`
	// Exporter is the label of node_exporter's series with the name of the node. If it
	// is empty, they are found by the addresses of kube_node_info.
	Exporter string `json:"exporter,omitempty"`
	// Owners, QoS and Requests are series of kube-state-metrics: whose a pod is, its
	// QoS class, and what it requests.
	Owners   bool `json:"owners,omitempty"`
	QoS      bool `json:"qos,omitempty"`
	Requests bool `json:"requests,omitempty"`
	// States says that kube_node_info is there, too: a moment without it is one at which
	// kube-state-metrics was away, and then nothing is known of pods.
	States bool `json:"states,omitempty"`
	// Batch says that pods request batch resources already. What these use does not
	// reduce the room, and they are not work that could become batch work.
	Batch bool `json:"batch,omitempty"`
	// Held and HeldTime are series of cAdvisor about CPU limits: the periods in which
	// a container was held back, and for how long.
	Held     bool `json:"held,omitempty"`
	HeldTime bool `json:"held_time,omitempty"`
	// Rate is the time over which use is averaged, in seconds. It is the step, unless
	// the server has too few samples in a step.
	Rate int64 `json:"rate_s"`
}

// WhereOf returns the matchers of labels and their values.
func WhereOf(labels map[string]string) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		fmt.Fprintf(&b, "%s=%s,", name, strconv.Quote(labels[name]))
	}
	return b.String()
}

// Of returns the series of a metric with matchers.
func (s Sources) Of(metric, matchers string) string { return metric + "{" + s.Where + matchers + "}" }

// A Machine is a node as the server knows it.
type Machine struct {
	Name      string   `json:"name"`
	Pool      string   `json:"pool,omitempty"`
	Size      Size     `json:"size"`
	Addresses []string `json:"addresses,omitempty"`
}

// A Size is how large a node is.
type Size struct {
	CPU    unit.MilliCPU `json:"cpu_mcpu"`
	Memory unit.Bytes    `json:"memory_bytes"`
}

// A Column is one measure of nodes over time: CPU in thousandths of a CPU, memory in
// KiB.
type Column string

// The columns. A column about CPU is a mean over the step, one about memory the
// greatest value in it.
const (
	UsedCPU       Column = "used-cpu" // of the whole node
	PodsCPU       Column = "pods-cpu" // of all pods
	BatchCPU      Column = "batch-cpu"
	CountedCPU    Column = "counted-cpu" // of pods without batch resources, as the reclaim policy counts them
	AskedCPU      Column = "asked-cpu"   // requested by all pods
	UsedMemory    Column = "used-memory"
	PodsMemory    Column = "pods-memory"
	CountedMemory Column = "counted-memory"
	AskedMemory   Column = "asked-memory"
	States        Column = "states" // has a value where kube-state-metrics knew the node
)

// A Query is an expression of PromQL for some nodes, and the label with the name of the
// node in its answer.
type Query struct {
	Column Column
	Text   string
	Label  string
}

// Integer returns a value of the column, of at least 0, as a whole number of its unit.
func (c Column) Integer(v float64) int64 {
	switch c {
	case UsedMemory, PodsMemory, CountedMemory, AskedMemory:
		return round(v / 1024)
	}
	return round(v * 1000)
}

// round rounds a use of at least 0. 2⁵³ is the last exact float.
func round(v float64) int64 { return int64(min(v+0.5, 1<<53)) }

// wants reports whether the rules ask for the requests of pods.
func wants(rules overcommit.Config) bool {
	return rules.CPU.Policy != overcommit.ByUsage || rules.Memory.Policy != overcommit.ByUsage || rules.MinServicePercent > 0
}

// needsStates reports whether kube-state-metrics says something that the rules ask for, or
// which work could be batch work.
func (s Sources) needsStates(rules overcommit.Config) bool {
	return s.States && (s.Batch || s.couldBeBatch() != "" || wants(rules))
}

// Lacks reports whether the rules need requests of pods that the server does not have.
func (s Sources) Lacks(rules overcommit.Config) bool { return wants(rules) && !s.Requests }
