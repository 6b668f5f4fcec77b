package config

import (
	"fmt"
	"math"
	"reflect"
	"strconv"

	"tenon.sh/tenon/internal/decide/policy"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// These annotations of a node contain settings for this node.
const (
	annotationColocation  = "node.koordinator.sh/colocation-strategy"
	annotationReservation = "node.koordinator.sh/reservation"
)

// A ratio is a node label whose value replaces a percentage of colocation-config.
type ratio struct {
	label string
	most  float64
	to    func(*Colocation) *node.Maybe[unit.Percent]
}

var ratios = []ratio{
	{"node.koordinator.sh/cpu-reclaim-ratio", 0, func(c *Colocation) *node.Maybe[unit.Percent] { return &c.CPUReclaimThresholdPercent }},
	{"node.koordinator.sh/memory-reclaim-ratio", 0, func(c *Colocation) *node.Maybe[unit.Percent] { return &c.MemoryReclaimThresholdPercent }},
	{"node.koordinator.sh/mid-static-cpu-reserved-ratio", 1, func(c *Colocation) *node.Maybe[unit.Percent] { return &c.MidStaticCPUReservedPercent }},
	{"node.koordinator.sh/mid-static-memory-reserved-ratio", 1, func(c *Colocation) *node.Maybe[unit.Percent] { return &c.MidStaticMemoryReservedPercent }},
}

// A NodeConfig is the configuration of one node of a cluster.
type NodeConfig struct {
	// Strategies has the keys that are set for the node. All other keys have their defaults.
	Strategies Strategies
	// Policy is the configuration of the policies. The annotation of the node
	// determines its Overcommit.ReservedCPU and ReservedMemory.
	Policy policy.Config
	// Applications run on the node outside Kubernetes.
	Applications []HostApplication
	// Objectives are the objectives of pods by selector.
	Objectives PodObjectives
	// Chosen lists the entries of the ConfigMap that select this node.
	Chosen []string
	// Notices lists the settings that this version does not support.
	Notices []string
	// Unlikely lists the settings that count, but that are probably not meant.
	Unlikely []string
}

// Node returns the configuration of a node with these labels and annotations. A later
// source overrides an earlier one. The sources are: defaults, settings of the
// ConfigMap for all nodes, the first entry that selects the node, the node's
// annotation, the node's labels. An annotation or label with a fault is ignored.
func (c Cluster) Node(labels, annotations map[string]string) (NodeConfig, []Fault) {
	var n NodeConfig
	n.Strategies.Threshold = choose(&n, c.threshold, labels)
	n.Strategies.QOS = choose(&n, c.qos, labels)
	n.Strategies.Burst = choose(&n, c.burst, labels)
	colocation, faults := n.overlay(choose(&n, c.colocation, labels), labels, annotations)
	// If a feature is disabled for the cluster, a single node cannot enable it.
	if !c.colocation.all.Enable.Or(false) {
		colocation.Enable = c.colocation.all.Enable
	}
	n.Strategies.Colocation = colocation
	n.Strategies.leaveOut() // the ConfigMap and the annotation have already caused the notices
	n.Applications = choose(&n, c.hostApps, labels).Applications
	n.Notices = append(n.Notices, HostApplications{n.Applications}.notices()...)
	n.Objectives = choose(&n, c.objectives, labels)
	n.Policy = n.Strategies.Policy()
	n.Notices = append(n.Notices, n.Strategies.Notices()...)
	for _, other := range []struct {
		key string
		v   any
	}{
		{keySystem, choose(&n, c.system, labels)},
		{keyNormalization, choose(&n, c.normalization, labels)},
		{keyAmplification, choose(&n, c.amplification, labels)},
	} {
		n.Notices = append(n.Notices, noticesIn(reflect.ValueOf(other.v), other.key)...)
	}
	if c.IsOff(labels) {
		n.turnOff()
	}
	if text, given := annotations[annotationReservation]; given {
		faults = append(faults, n.reserve(text)...)
	}
	return n, faults
}

// choose returns the settings of the node. It adds the entry that selects the node to Chosen.
func choose[T any](n *NodeConfig, l layers[T], labels map[string]string) T {
	v, at := l.settingsFor(labels)
	if at != "" {
		n.Chosen = append(n.Chosen, at)
	}
	return v
}

// overlay returns c with the values from a node's annotation and labels.
func (n *NodeConfig) overlay(c Colocation, labels, annotations map[string]string) (Colocation, []Fault) {
	var faults []Fault
	if text, given := annotations[annotationColocation]; given {
		own, wrong := annotation[Colocation](n, text, annotationColocation)
		if faults = wrong; len(wrong) == 0 {
			fill(reflect.ValueOf(&own).Elem(), reflect.ValueOf(c))
			c = own
		}
	}
	n.Unlikely = append(n.Unlikely, Strategies{Colocation: c, Burst: n.Strategies.Burst}.Unlikely()...)
	for _, r := range ratios {
		text, given := labels[r.label]
		if !given {
			continue
		}
		f, err := strconv.ParseFloat(text, 64)
		if err != nil || !(f >= 0) || f > 1000 || r.most > 0 && f > r.most {
			want := "a number of at least 0, such as 0.7 for 70 %"
			if r.most > 0 {
				want = "a number from 0 to 1, such as 0.7 for 70 %"
			}
			faults = append(faults, Fault{Field: "label " + r.label, Problem: quote(text) + ": want " + want})
			continue
		}
		if f > 1 && c.Enable.Or(false) {
			n.Unlikely = append(n.Unlikely, fmt.Sprintf("label %s: %s counts as %.0f %%, but is probably not meant: want a number from 0 to 1, such as 0.7 for 70 %%", r.label, quote(text), f*100))
		}
		*r.to(&c) = node.Some(unit.Percent(math.Round(f * 100)))
	}
	return c, faults
}

// annotation parses an annotation of the node n. Unknown keys and values without an effect
// cause only notices: the annotation may be for Koordinator or for a newer version.
func annotation[T any](n *NodeConfig, text, name string) (T, []Fault) {
	v, notices, faults := ReadLenientJSON[T](text)
	for i := range faults {
		faults[i].Field = movePath(faults[i].Field, "", "annotation "+name)
	}
	for _, f := range notices {
		n.Notices = append(n.Notices, Fault{Field: movePath(f.Field, "", "annotation "+name), Problem: f.Problem}.String())
	}
	return v, faults
}

// reservation is the content of the annotation for resources of a node that pods do not get.
type reservation struct {
	Resources struct {
		CPU    node.Maybe[unit.MilliCPU] `json:"cpu,omitzero"`
		Memory node.Maybe[unit.Bytes]    `json:"memory,omitzero"`
	} `json:"resources,omitzero"`
	CPUs   node.Maybe[string] `json:"reservedCPUs,omitzero"`
	Policy node.Maybe[string] `json:"applyPolicy,omitzero" oneof:"Default ReservedCPUsOnly"`
}

// reserve applies the reservation annotation to the batch resources. BE does not get the
// reserved CPU either. The annotation may list CPUs by number. Listed CPUs belong to the
// system: BE never runs on them, no workload gets them as exclusive CPUs, and they count as
// reserved CPU. With ReservedCPUsOnly, no amount is subtracted.
func (n *NodeConfig) reserve(text string) []Fault {
	const field = "annotation " + annotationReservation
	r, faults := annotation[reservation](n, text, annotationReservation)
	if len(faults) > 0 {
		return faults
	}
	cpus, err := unit.ParseCPUSet(r.CPUs.Or(""))
	if err != nil {
		return []Fault{{Field: field + ".reservedCPUs", Problem: quote(r.CPUs.Or("")) + ": want CPUs such as 0-1,8"}}
	}
	n.Policy.NodeCPUs.ReservedCPUs = cpus
	if r.Policy.Or("") == "ReservedCPUsOnly" {
		return nil
	}
	cpu, memory := r.Resources.CPU.Or(0), r.Resources.Memory.Or(0)
	if !cpus.Empty() {
		cpu = unit.CPUs(cpus.Len())
	} else if n.Policy.Suppress.Enable {
		n.Policy.NodeCPUs.Reserved = cpu
	}
	if n.Policy.Overcommit.Enable {
		n.Policy.Overcommit.ReservedCPU, n.Policy.Overcommit.ReservedMemory = cpu, memory
	}
	return nil
}
