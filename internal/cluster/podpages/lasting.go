package podpages

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"tenon.sh/tenon/api/v1alpha1"
	"tenon.sh/tenon/internal/cluster/kube"
	"tenon.sh/tenon/internal/cluster/manifest"
	"tenon.sh/tenon/internal/cluster/nodepages"
	"tenon.sh/tenon/internal/cluster/quantity"
	"tenon.sh/tenon/internal/decide/promise"
	"tenon.sh/tenon/internal/model/unit"
	"tenon.sh/tenon/internal/table"
)

// longest is the length of the longest promises, in hours.
var longest = time.Duration(promise.Hours[len(promise.Hours)-1])

// A Lasting says where room for a batch pod is promised until it ends.
type Lasting struct {
	Pod string `json:"pod"`
	// Seconds is how long the pod says that it runs.
	Seconds int64 `json:"seconds"`
	// Nodes have such room for one more pod, those with the highest probability first.
	Nodes []LastingNode `json:"nodes,omitempty"`
	// Unknown is the number of nodes that the pod may have and that promise nothing for
	// as long yet.
	Unknown int `json:"unknown,omitempty"`
	// TooLong means that no node makes promises for as long, from the hour of its last
	// promises to the end of the pod.
	TooLong bool `json:"tooLong,omitempty"`
	// OthersUnknown means that not all pods are known: Nodes may have less room.
	OthersUnknown bool `json:"othersUnknown,omitempty"`
}

// A LastingNode promises the room with a probability in percent.
type LastingNode struct {
	Name    string       `json:"name"`
	Percent unit.Percent `json:"percent"`
}

// lasting returns where room for a pod of a manifest lasts until the pod ends. It
// reports false if the pod requests no batch resources, or does not say how long it runs.
func (c *Cluster) lasting(want *manifest.Wanted, as *corev1.Pod) (l Lasting, says bool) {
	runs, _ := kube.DurationOf(as)
	d, known := runs.Value()
	cpu, memory := kube.Requested(as)
	if !known || cpu == 0 && memory == 0 {
		return l, false
	}
	p := alike(want, as, 0)
	l = Lasting{Pod: cmp.Or(as.Namespace, corev1.NamespaceDefault) + "/" + want.Name, Seconds: int64(d / time.Second)}
	l.OthersUnknown = c.lacks.Pods != ""
	within, beyond := 0, 0 // nodes with promises that are long enough, or are all shorter
	for _, n := range c.nodes {
		if p.only != "" && p.only != n.Name || c.lacks.Nodes == "" && n.exclusion(p) != "" || n.IsSilent(c.now) || n.Report.Status.Promises == nil {
			continue
		}
		// The hours of a promise count from the hour of the last minute that had ended
		// when it was reported: in the first minute of an hour, that is the hour before.
		from := n.Report.Status.Reported.Add(-time.Minute).Truncate(time.Hour)
		hours := (c.now.Add(d).Sub(from) + time.Hour - 1) / time.Hour
		if hours > longest {
			beyond++
			continue
		}
		within++
		s := n.Report.Status.Promises
		ofCPU, knownCPU := surest(s.CPU, int32(hours), cpu, n.requested(kube.BatchCPU), func(a v1alpha1.PromisedAmount) unit.MilliCPU { return quantity.CPU(*a.Amount, unit.Down) })
		ofMemory, knownMemory := surest(s.Memory, int32(hours), memory, n.requested(kube.BatchMemory), func(a v1alpha1.PromisedAmount) unit.Bytes { return unit.Bytes(quantity.Whole(*a.Amount, unit.Down)) })
		switch {
		case !knownCPU || !knownMemory:
			l.Unknown++
		case ofCPU > 0 && ofMemory > 0:
			l.Nodes = append(l.Nodes, LastingNode{n.Name, min(ofCPU, ofMemory)})
		}
	}
	if l.TooLong = d > longest*time.Hour || beyond > 0 && within == 0; !l.TooLong {
		l.Unknown += beyond // their next reports have the promises of the hour that the others have
	}
	slices.SortFunc(l.Nodes, func(a, b LastingNode) int {
		return cmp.Or(cmp.Compare(b.Percent, a.Percent), strings.Compare(a.Name, b.Name))
	})
	return l, true
}

// requested returns what the pods of a node request of a batch resource.
func (n *nodeState) requested(name corev1.ResourceName) int64 {
	all, free := n.Status.Allocatable[name], n.free[name]
	return quantity.Whole(all, unit.Up) - quantity.Whole(free, unit.Down)
}

// surest returns the highest probability with which there is room for a request beside
// what other pods request, for some hours. It is 0 if there is none with any. known is
// false if nothing is promised for as long.
func surest[T unit.MilliCPU | unit.Bytes](all []v1alpha1.PromisedAmount, hours int32, request T, others int64, amount func(v1alpha1.PromisedAmount) T) (best unit.Percent, known bool) {
	for _, a := range all {
		if a.Hours < hours || a.Amount == nil {
			continue
		}
		known = true
		if amount(a)-T(others) >= request {
			best = max(best, unit.Percent(a.Percent))
		}
	}
	return best, known
}

// mostNamed is the number of nodes that a line names.
const mostNamed = 8

// String prints the answer as a line.
func (l Lasting) String() string {
	text := fmt.Sprintf("%s says that it runs for %s: ", l.Pod, nodepages.Duration(time.Duration(l.Seconds)*time.Second))
	switch {
	case l.TooLong:
		return text + fmt.Sprintf("no promise is so long: room is promised for at most %d hours from a full hour on", longest)
	case len(l.Nodes) == 0:
		text += "no node promises room for as long"
	default:
		var names []string
		for _, n := range l.Nodes[:min(len(l.Nodes), mostNamed)] {
			names = append(names, fmt.Sprintf("%s (%v)", n.Name, n.Percent))
		}
		text += "room for as long is promised on " + strings.Join(names, ", ")
		if more := len(l.Nodes) - len(names); more > 0 {
			text += fmt.Sprintf(" and %d more", more)
		}
		if l.OthersUnknown {
			text += ", less what other pods request there, which is not known"
		}
	}
	if l.Unknown > 0 {
		text += "; too little is known yet of " + table.Count(l.Unknown, "node")
	}
	return text
}
