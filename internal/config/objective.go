// This is the part of the configuration that states objectives of services: the
// JSON object of a rule, of a pod's annotation and of a ConfigMap, and the
// entries that select pods.

package config

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"tenon.sh/tenon/internal/model/node"
)

// An Objective is the JSON object that states an objective. It has the same keys
// wherever it is written.
type Objective struct {
	RunQueueDelay node.Maybe[time.Duration] `json:"runQueueDelay,omitzero" range:"10µs..1s"`
	// These parts of the requests should be answered within these times.
	Within50  node.Maybe[time.Duration] `json:"p50,omitzero" range:"100µs..1m"`
	Within75  node.Maybe[time.Duration] `json:"p75,omitzero" range:"100µs..1m"`
	Within90  node.Maybe[time.Duration] `json:"p90,omitzero" range:"100µs..1m"`
	Within95  node.Maybe[time.Duration] `json:"p95,omitzero" range:"100µs..1m"`
	Within99  node.Maybe[time.Duration] `json:"p99,omitzero" range:"100µs..1m"`
	Within999 node.Maybe[time.Duration] `json:"p99.9,omitzero" range:"100µs..1m"`
	// Source is where the durations of requests are read, and the other keys say
	// which they are (node.RequestObjective).
	Source     node.Maybe[string] `json:"source,omitzero" oneof:"metrics socket query"`
	Port       node.Maybe[int64]  `json:"port,omitzero" range:"1..65535"`
	Path       node.Maybe[string] `json:"path,omitzero"`
	Family     node.Maybe[string] `json:"family,omitzero"`
	FamilyUnit node.Maybe[string] `json:"familyUnit,omitzero" oneof:"s ms"`
	Labels     map[string]string  `json:"labels,omitempty"`
}

// These apply where an objective for requests does not say otherwise.
const (
	defaultPath   = "/metrics"
	defaultFamily = "http_request_duration_seconds"
)

// Node returns the objective for the policies. o has no fault.
func (o Objective) Node() node.Objective {
	n := node.Objective{RunQueueDelay: o.RunQueueDelay}
	for i, target := range o.targets() {
		n.Requests.Within[i] = target.Or(0)
	}
	if !n.Requests.Stated() {
		return n
	}
	n.Requests.Source = node.RequestSource(valueOf(o.Source))
	switch n.Requests.Source {
	case node.SourceQuery:
	case node.SourceSocket:
		n.Requests.Port = int(valueOf(o.Port))
		return n
	default:
		n.Requests.Port, n.Requests.Path = int(valueOf(o.Port)), o.Path.Or(defaultPath)
	}
	series := &n.Requests.Series
	series.Family = o.Family.Or(defaultFamily)
	series.Unit = unitOf(series.Family, valueOf(o.FamilyUnit))
	for i, name := range slices.Sorted(maps.Keys(o.Labels)) {
		if i < node.MaxLabels {
			series.Labels[i] = node.Label{Name: name, Value: o.Labels[name]}
		}
	}
	return n
}

// targets returns the target of each of node.Percentiles.
func (o Objective) targets() [len(node.Percentiles)]node.Maybe[time.Duration] {
	return [...]node.Maybe[time.Duration]{o.Within50, o.Within75, o.Within90, o.Within95, o.Within99, o.Within999}
}

// unitOf returns the unit of a histogram with a name. It returns 0 if neither the
// author nor the name says it.
func unitOf(family, said string) time.Duration {
	switch {
	case said == "ms", said == "" && (strings.HasSuffix(family, "_milliseconds") || strings.HasSuffix(family, "_ms")):
		return time.Millisecond
	case said == "s", strings.HasSuffix(family, "_seconds"):
		return time.Second
	}
	return 0
}

// checkObjective makes the checks of an objective that the struct tags cannot
// express.
func (c *checker) checkObjective(o Objective, path string) {
	at := func(field string) string { return join(path, field) }
	n := o.Node().Requests
	if !n.Stated() {
		others := o.Source.Known() || o.Port.Known() || o.Path.Known() || o.Family.Known() || o.FamilyUnit.Known() || len(o.Labels) > 0
		var names []string
		bad := false
		for _, p := range node.Percentiles {
			names, bad = append(names, p.Name), bad || c.bad[at(p.Name)]
		}
		c.need(at("p99"), !others || bad, "a time for one of "+strings.Join(names, ", "))
		return
	}
	c.need(at("source"), n.Source != "", "one of metrics, socket, query")
	query := n.Source == node.SourceQuery
	if query {
		const why = "want it for the sources metrics and socket only: Prometheus knows where it reads the pod"
		if port, given := o.Port.Value(); given {
			c.fault(at("port"), fmt.Sprintf("%d: %s", port, why))
		}
		if where, given := o.Path.Value(); given {
			c.fault(at("path"), quote(where)+": want it for the source metrics only: Prometheus knows where it reads the pod")
		}
	} else {
		c.need(at("port"), n.Port != 0, "a whole number from 1 to 65535")
	}
	if n.Source == node.SourceSocket {
		for _, other := range []struct {
			field  string
			stated bool
		}{{"path", o.Path.Known()}, {"family", o.Family.Known()}, {"familyUnit", o.FamilyUnit.Known()}, {"labels", len(o.Labels) > 0}} {
			if other.stated {
				c.fault(at(other.field), "the source socket has no histogram of the service: want no such key")
			}
		}
		return
	}
	if !query {
		c.want(at("path"), n.Path, isURLPath(n.Path), "a path such as /metrics: at most 200 letters, digits and signs without spaces, after /")
	}
	family := IsSeriesName(n.Series.Family) && !strings.HasSuffix(n.Series.Family, "_bucket")
	c.want(at("family"), n.Series.Family, family, "the name of a histogram without _bucket: at most 200 letters, digits, _ and :")
	c.need(at("familyUnit"), !family || n.Series.Unit != 0, "s or ms, because the name of the family ends neither in _seconds nor in _milliseconds")
	if len(o.Labels) > node.MaxLabels {
		c.fault(at("labels"), fmt.Sprintf("%d labels: want at most %d", len(o.Labels), node.MaxLabels))
	}
	for _, name := range slices.Sorted(maps.Keys(o.Labels)) {
		field := at("labels[" + label(name) + "]")
		c.want(field, name, IsLabelName(name) && name != "le", "the name of a label other than le: at most 200 letters, digits and _")
		c.want(field, name, !query || name != "namespace" && name != "pod", "another label, because Tenon sets namespace and pod to those of the pod")
		c.want(field, o.Labels[name], len(o.Labels[name]) <= 200, "a value of at most 200 bytes")
	}
}

// isURLPath reports whether s can be the path of a request.
func isURLPath(s string) bool {
	odd := func(r rune) bool { return r <= ' ' || r > '~' || r == '#' }
	_, err := url.ParseRequestURI(s) // refuses % without two digits
	return err == nil && strings.HasPrefix(s, "/") && !strings.HasPrefix(s, "//") && len(s) <= 200 && !strings.ContainsFunc(s, odd)
}

// IsLabelName reports whether s can be the name of a label of Prometheus.
func IsLabelName(s string) bool { return IsSeriesName(s) && !strings.Contains(s, ":") }

// IsSeriesName reports whether s can be the name of a time series of Prometheus.
func IsSeriesName(s string) bool {
	odd := func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '_' && r != ':'
	}
	return s != "" && len(s) <= 200 && (s[0] < '0' || s[0] > '9') && !strings.ContainsFunc(s, odd)
}

// PodObjectives is objective-config of the ConfigMap: objectives of pods by selector.
type PodObjectives struct {
	// Scrape says whether the agent may read metrics that pods show, for
	// objectives with the source metrics. Without it, it may. LeastRequestLatency is
	// the shortest target for requests that a pod may have, from any source, and
	// LeastRunQueueDelay the shortest for waits.
	Scrape              node.Maybe[bool]          `json:"scrape,omitzero"`
	LeastRunQueueDelay  node.Maybe[time.Duration] `json:"leastRunQueueDelay,omitzero" range:"10µs..1s"`
	LeastRequestLatency node.Maybe[time.Duration] `json:"leastRequestLatency,omitzero" range:"100µs..1m"`

	Objectives []ObjectiveEntry `json:"objectives,omitempty" strict:"yes"`
}

// An ObjectiveEntry states the objective of the latency-sensitive pods that it selects.
type ObjectiveEntry struct {
	Name node.Maybe[string] `json:"name,omitzero"`
	// Namespaces and PodSelector select pods. If one of them is empty, it selects
	// all pods. One of them must not be empty.
	Namespaces  []string  `json:"namespaces,omitempty"`
	PodSelector Selector  `json:"podSelector,omitzero"`
	Objective   Objective `json:"objective,omitzero"`
}

// SelectsAll reports whether e has neither namespaces nor a selector. Such an
// entry would give every service of a cluster an objective.
func (e ObjectiveEntry) SelectsAll() bool {
	return len(e.Namespaces) == 0 && len(e.PodSelector.Labels) == 0 && len(e.PodSelector.Expressions) == 0
}

// Refuses returns why the administrator does not allow the objective of a pod for
// its requests. It returns "" if it is allowed.
func (p PodObjectives) Refuses(o node.RequestObjective) node.SourceTrouble {
	switch {
	case o.Source == node.SourceMetrics && !p.Scrape.Or(true):
		return node.TroubleOff
	case len(p.TooStrict(node.Objective{Requests: o})) > 0:
		return node.TroubleTooStrict
	}
	return ""
}

// TooStrict returns a fault for each time of an objective that is shorter than the
// administrator allows.
func (p PodObjectives) TooStrict(o node.Objective) (faults []Fault) {
	below := func(field string, got time.Duration, key string, least time.Duration) {
		if got > 0 && got < least {
			faults = append(faults, Fault{Field: field, Problem: fmt.Sprintf("%v: want %v or more (%s in %s)", got, least, key, keyObjective)})
		}
	}
	below("runQueueDelay", o.RunQueueDelay.Or(0), "leastRunQueueDelay", valueOf(p.LeastRunQueueDelay))
	for i, target := range o.Requests.Within {
		below(node.Percentiles[i].Name, target, "leastRequestLatency", valueOf(p.LeastRequestLatency))
	}
	return faults
}

// Limit returns an objective as it counts: one for waits that is shorter than the
// administrator allows is not judged.
func (p PodObjectives) Limit(o node.Objective) node.Objective {
	if want, asks := o.RunQueueDelay.Value(); asks && want < valueOf(p.LeastRunQueueDelay) {
		o.RunQueueDelay, o.TooStrict = node.Maybe[time.Duration]{}, o.RunQueueDelay
	}
	return o
}

// Of returns the objective of a pod with this namespace and these labels: that
// of the first entry that selects the pod.
func (p PodObjectives) Of(namespace string, labels map[string]string) node.Objective {
	for _, e := range p.Objectives {
		if (len(e.Namespaces) == 0 || slices.Contains(e.Namespaces, namespace)) && e.PodSelector.Selects(labels) {
			return e.Objective.Node()
		}
	}
	return node.Objective{}
}
