package pull

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"tenon.sh/tenon/internal/cluster/past"
	"tenon.sh/tenon/internal/cluster/promapi"
	"tenon.sh/tenon/internal/model/unit"
)

// nodeLabels are labels in which installations of Prometheus keep the name of a node.
var nodeLabels = []string{"node", "kubernetes_io_hostname", "nodename", "kubernetes_node", "node_name", "instance", "hostname", "host"}

// poolLabels are labels of nodes by which clouds and autoscalers tell pools apart.
var poolLabels = []string{
	"label_tenon_sh_pool", "label_karpenter_sh_nodepool", "label_cloud_google_com_gke_nodepool", "label_eks_amazonaws_com_nodegroup",
	"label_kubernetes_azure_com_agentpool", "label_agentpool", "label_node_kubernetes_io_instance_type",
}

// recent is the time in which a series must have a sample to exist.
const recent = "15m"

// A surveyor finds out what a server has. The first error ends it.
type surveyor struct {
	*puller
	ctx    context.Context
	window past.Window
	err    error
	nodes  map[string]*past.Machine
	gone   map[string]bool // nodes that were there, and not at the end
}

// survey finds out which nodes and series a server has.
func (p *puller) survey(ctx context.Context, w past.Window) (found, error) {
	s := &surveyor{puller: p, ctx: ctx, window: w, nodes: map[string]*past.Machine{}, gone: map[string]bool{}}
	s.nodesOfCluster()
	if s.err == nil && s.severalClusters() && s.err == nil {
		s.err = ErrClusters
	}
	named := len(s.nodes) > 0
	sources := s.sources(named)
	if s.err == nil && sources.Lacks(p.Rules) {
		s.err = ErrNoRequests
	}
	s.sizes(sources)
	s.pools()
	if s.err != nil {
		return found{}, s.err
	}
	f := found{Sources: sources, Names: slices.Sorted(maps.Keys(s.nodes)), Gone: len(s.gone)}
	var whole []past.Machine
	for _, m := range s.nodes {
		if m.Size.CPU <= 0 || m.Size.Memory <= 0 {
			f.Unsized++
			continue
		}
		slices.Sort(m.Addresses)
		whole = append(whole, *m)
	}
	if len(whole) == 0 {
		return found{}, ErrNoSize
	}
	f.Machines = past.Sample(whole, p.Sample, p.Seed)
	return f, nil
}

// at asks for the values of an expression at the end of a day of the window.
func (s *surveyor) at(i int64, what, text string) []promapi.Line {
	if s.err != nil {
		return nil
	}
	end := (s.window.First + i + 1) * day
	lines, err := s.ask(s.ctx, what, text, promapi.Span{First: end, Last: end})
	s.err = err
	return lines
}

// eachDay passes the values of an expression at the end of each day to a function, the
// last day last.
func (s *surveyor) eachDay(what, text string, use func(labels map[string]string, value float64)) {
	for i := range s.window.Days {
		for _, l := range s.at(i, what, text) {
			if len(l.Values) > 0 {
				use(l.Labels, l.Values[0])
			}
		}
	}
}

// last returns the values at the end of the last day that has some.
func (s *surveyor) last(what, text string) []promapi.Line {
	for i := range s.window.Days {
		if lines := s.at(s.window.Days-1-i, what, text); len(lines) > 0 {
			return lines
		}
	}
	return nil
}

// of returns the series of a metric.
func (s *surveyor) of(metric, matchers string) string {
	return past.Sources{Where: past.WhereOf(s.Match)}.Of(metric, matchers)
}

// has reports whether a series exists.
func (s *surveyor) has(metric, matchers string) bool {
	return len(s.last("whether there is "+metric, fmt.Sprintf("count(count_over_time(%s[%s]))", s.of(metric, matchers), recent))) > 0
}

// clusterLabels are labels in which servers of several clusters have their names.
var clusterLabels = []string{"cluster", "cluster_name", "k8s_cluster_name", "k8s_cluster"}

// severalClusters reports whether nodes of more than one cluster match. Their pods may
// have the same names, and so may their nodes.
func (s *surveyor) severalClusters() bool {
	series := []string{s.of("kube_node_info", "")}
	if len(s.nodes) == 0 { // other series name the nodes
		series = []string{s.of("container_cpu_usage_seconds_total", `pod!=""`), s.of("node_cpu_seconds_total", `mode="idle"`)}
	}
	for _, label := range clusterLabels {
		for _, of := range series {
			if len(s.last("the clusters", fmt.Sprintf("count by (%s) (count_over_time(%s[%s]))", label, of, recent))) > 1 {
				return true
			}
		}
	}
	return false
}

// nodesOfCluster finds the nodes and their addresses in kube-state-metrics.
func (s *surveyor) nodesOfCluster() {
	s.eachDay("the nodes", fmt.Sprintf("max by (node, internal_ip) (max_over_time(%s[%ds]))", s.of("kube_node_info", ""), day), func(labels map[string]string, _ float64) {
		name := labels["node"]
		if name == "" {
			return
		}
		m := s.node(name)
		if ip := labels["internal_ip"]; ip != "" && !slices.Contains(m.Addresses, ip) {
			m.Addresses = append(m.Addresses, ip)
		}
	})
	s.leaveGone(nil, "node", "kube_node_info", "")
}

// leaveGone leaves out the nodes that were gone at the end. Another node may have taken
// their place, and sums of nodes are about nodes that run side by side. The end is that of
// the last day with series, or that whole day if the server read none at its end. The
// series say nothing about the nodes that other series named before.
func (s *surveyor) leaveGone(before map[string]*past.Machine, label, metric, matchers string) {
	for i := s.window.Days - 1; i >= 0; i-- {
		for _, over := range []string{recent, strconv.Itoa(day) + "s"} {
			left := map[string]bool{}
			for _, l := range s.at(i, "the nodes at the end", fmt.Sprintf("count by (%s) (count_over_time(%s[%s]))", label, s.of(metric, matchers), over)) {
				left[l.Labels[label]] = true
			}
			if len(left) == 0 {
				continue
			}
			for name := range s.nodes {
				switch {
				case before[name] != nil:
				case left[name]:
					delete(s.gone, name)
				default:
					delete(s.nodes, name)
					s.gone[name] = true
				}
			}
			return
		}
	}
}

func (s *surveyor) node(name string) *past.Machine {
	if s.nodes[name] == nil {
		s.nodes[name] = &past.Machine{Name: name}
	}
	return s.nodes[name]
}

// sources finds out which series say what nodes and pods used. named says that the
// names of the nodes are known; else they are what a label of cAdvisor or of
// node_exporter has.
func (s *surveyor) sources(named bool) (is past.Sources) {
	const cpu, memory = "container_cpu_usage_seconds_total", "container_memory_working_set_bytes"
	is.Rate, is.Where = s.window.Step*60, past.WhereOf(s.Match)
	is.Label = s.labelOf(s.NodeLabel, cpu, `,pod!=""`, named)
	if is.Label == "" && s.err == nil && s.has(cpu, `pod!=""`) {
		s.err = ErrNoLabel
	}
	known := is.Label + `!="",`
	whole := func(cadvisor, exports string) past.Source {
		if is.Label != "" && s.has(cadvisor, known+`id="/"`) {
			return past.CAdvisor
		}
		if exporter := s.labelOf("", exports, "", named); exporter != "" || named && s.byAddress(exports) {
			is.Exporter = exporter
			return past.NodeExporter
		}
		return past.PodsOnly
	}
	is.CPU, is.Memory = whole(cpu, "node_cpu_seconds_total"), whole(memory, "node_memory_MemTotal_bytes")
	if is.Label != "" {
		is.Containers = s.has(cpu, known+`pod!="",container!="",container!="POD"`)
		is.Held = s.has("container_cpu_cfs_throttled_periods_total", known+`pod!=""`) && s.has("container_cpu_cfs_periods_total", known+`pod!=""`)
		is.HeldTime = is.Held && s.has("container_cpu_cfs_throttled_seconds_total", known+`pod!=""`)
		is.Owners, is.QoS = s.has("kube_pod_owner", ""), s.has("kube_pod_status_qos_class", "")
		is.Requests = s.has("kube_pod_container_resource_requests", "") && s.has("kube_pod_status_phase", "")
		is.States = named
		is.Batch = s.has("kube_pod_container_resource_requests", past.BatchResources)
	}
	switch {
	case s.err != nil:
	case is.Label == "" && (is.CPU == past.PodsOnly || is.Memory == past.PodsOnly) && len(s.nodes) == 0:
		s.err = ErrNoNodes
	case is.Label == "" && (is.CPU == past.PodsOnly || is.Memory == past.PodsOnly):
		s.err = ErrNoUse
	}
	s.interval(&is)
	return is
}

// labelOf returns the label of a metric that has the names of most nodes, or "". more are
// more matchers, after a comma. If no names are known, the first label that is there has
// them.
func (s *surveyor) labelOf(given, metric, more string, named bool) string {
	labels := nodeLabels
	if given != "" {
		labels = []string{given}
	}
	count := func(label, lately string) string {
		return fmt.Sprintf("count by (%s) (count_over_time(%s[%s]))", label, s.of(metric, label+`!=""`+more), lately)
	}
	best, most := "", 0
	for _, label := range labels {
		n := 0
		for _, l := range s.last("the nodes by "+label, count(label, recent)) {
			if s.nodes[l.Labels[label]] != nil || !named {
				n++
			}
		}
		if n > most {
			best, most = label, n
		}
		if n > 0 && (n == len(s.nodes) || !named) {
			break
		}
	}
	if best != "" && !named {
		before := maps.Clone(s.nodes)
		s.eachDay("the nodes by "+best, count(best, strconv.Itoa(day)+"s"), func(labels map[string]string, _ float64) { s.node(labels[best]) })
		s.leaveGone(before, best, metric, best+`!=""`+more)
	}
	return best
}

// byAddress reports whether the instances of a series have addresses of nodes.
func (s *surveyor) byAddress(metric string) bool {
	known := map[string]bool{}
	for _, m := range s.nodes {
		for _, a := range m.Addresses {
			known[a] = true
		}
	}
	for _, l := range s.last("the instances", fmt.Sprintf("count by (instance) (count_over_time(%s[%s]))", s.of(metric, ""), recent)) {
		at := l.Labels["instance"]
		if i := strings.LastIndexByte(at, ':'); i > 0 && !known[at] {
			at = strings.Trim(at[:i], "[]")
		}
		if known[at] {
			return true
		}
	}
	return false
}

// interval finds out how often the server reads its series, by those of a few nodes. A
// rate needs two samples.
func (s *surveyor) interval(is *past.Sources) {
	const few = 5
	metric, matchers := "node_cpu_seconds_total", `mode="idle",cpu="0"`
	if is.Label != "" {
		some := slices.Sorted(maps.Keys(s.nodes))
		metric, matchers = "container_cpu_usage_seconds_total", past.NodesOf(is.Label, some[:min(few, len(some))])+`,pod!=""`
	}
	for _, l := range s.last("the interval of the samples", fmt.Sprintf("max(count_over_time(%s[1h]))", s.of(metric, matchers))) {
		if len(l.Values) > 0 && l.Values[0] >= 1 {
			is.Rate = max(is.Rate, int64(3600/l.Values[0])*5/2)
		}
	}
}

// sizes finds the CPUs and the memory of the nodes.
func (s *surveyor) sizes(is past.Sources) {
	take := func(label string) func(map[string]string, float64) {
		return func(labels map[string]string, v float64) {
			m := s.nodes[labels[label]]
			switch {
			case m == nil || v <= 0 || v > 1<<53:
			case labels["resource"] == "cpu":
				m.Size.CPU = unit.MilliCPU(v*1000 + 0.5)
			case labels["resource"] == "memory":
				m.Size.Memory = unit.Bytes(v)
			}
		}
	}
	as := func(expression, resource string) string {
		return fmt.Sprintf(`label_replace(%s, "resource", %q, "", "")`, expression, resource)
	}
	var ways []func()
	for _, series := range []string{"kube_node_status_capacity", "kube_node_status_allocatable"} {
		ways = append(ways, func() {
			s.eachDay("the sizes of nodes", fmt.Sprintf("max by (node, resource) (max_over_time(%s[%ds]))", s.of(series, `resource=~"cpu|memory"`), day), take("node"))
		})
	}
	pair := func(label, cpu, memory string) func() {
		return func() {
			if label != "" {
				s.eachDay("the CPUs of nodes", as(cpu, "cpu"), take(label))
				s.eachDay("the memory of nodes", as(memory, "memory"), take(label))
			}
		}
	}
	most := func(label, metric string) string {
		return fmt.Sprintf("max by (%s) (max_over_time(%s[%ds]))", label, s.of(metric, ""), day)
	}
	cpus := fmt.Sprintf("count by (%[1]s) (count by (%[1]s, cpu) (count_over_time(%[2]s[%[3]ds])))", is.Exporter, s.of("node_cpu_seconds_total", `mode="idle"`), day)
	ways = append(ways, pair(is.Label, most(is.Label, "machine_cpu_cores"), most(is.Label, "machine_memory_bytes")),
		pair(is.Exporter, cpus, most(is.Exporter, "node_memory_MemTotal_bytes")))
	for _, way := range ways {
		if s.err != nil || !s.unsized() {
			return
		}
		way()
	}
}

// unsized reports whether the size of a node is not known.
func (s *surveyor) unsized() bool {
	for _, m := range s.nodes {
		if m.Size.CPU <= 0 || m.Size.Memory <= 0 {
			return true
		}
	}
	return false
}

// pools finds the pool of each node.
func (s *surveyor) pools() {
	labels := poolLabels
	if s.PoolLabel != "" {
		labels = []string{s.PoolLabel}
	}
	for _, label := range labels {
		some := false
		s.eachDay("the pools", fmt.Sprintf("max by (node, %s) (max_over_time(%s[%ds]))", label, s.of("kube_node_labels", label+`!=""`), day), func(of map[string]string, _ float64) {
			if m := s.nodes[of["node"]]; m != nil {
				m.Pool, some = of[label], true
			}
		})
		if some || s.err != nil {
			return
		}
	}
}
