package past

import (
	"fmt"
	"strconv"
	"strings"

	"tenon.sh/tenon/internal/decide/overcommit"
)

// Metrics of cAdvisor, and the matcher of the root cgroup.
const (
	cpuSeconds = "container_cpu_usage_seconds_total"
	workingSet = "container_memory_working_set_bytes"
	root       = `,id="/"`
)

// Queries returns what to ask about machines, with steps of so many seconds. An answer
// has one series for each machine.
func (s Sources) Queries(rules overcommit.Config, machines []Machine, step int64) (all []Query) {
	r := request{Sources: s, machines: machines, step: step}
	add := func(c Column, text, label string) { all = append(all, Query{c, text, label}) }
	byNode := func(pods string) string { return fmt.Sprintf("sum by (%s) (%s)", s.Label, pods) }
	switch s.CPU {
	case CAdvisor:
		add(UsedCPU, fmt.Sprintf("max by (%s) (rate(%s[%ds]))", s.Label, s.Of(cpuSeconds, r.nodes(s.Label)+root), s.Rate), s.Label)
	case NodeExporter:
		add(UsedCPU, r.exporter("sum", "cpu, mode", func(where string) string {
			return fmt.Sprintf("rate(%s[%ds])", s.Of("node_cpu_seconds_total", where+`,mode!~"idle|iowait|steal|guest|guest_nice"`), s.Rate)
		}), r.exporterLabel())
	}
	switch s.Memory {
	case CAdvisor:
		add(UsedMemory, fmt.Sprintf("max by (%s) (max_over_time(%s[%ds]))", s.Label, s.Of(workingSet, r.nodes(s.Label)+root), step), s.Label)
	case NodeExporter:
		add(UsedMemory, r.exporter("max", "", func(where string) string {
			return fmt.Sprintf("max_over_time((%s - %s - %s)[%ds:1m])", s.Of("node_memory_MemTotal_bytes", where), s.Of("node_memory_MemFree_bytes", where), s.Of("node_memory_Inactive_file_bytes", where), step)
		}), r.exporterLabel())
	}
	if s.Label == "" {
		return all
	}
	if s.needsStates(rules) {
		add(States, fmt.Sprintf("max by (node) (%s)", s.Of("kube_node_info", r.nodes("node"))), "node")
	}
	cpu, memory := r.cpuOfPods(), r.memoryOfPods()
	add(PodsCPU, byNode(cpu), s.Label)
	add(PodsMemory, byNode(memory), s.Label)
	cpu, memory = r.others(cpu), r.others(memory)
	if may := s.couldBeBatch(); may != "" {
		add(BatchCPU, byNode(fmt.Sprintf("%s and on (namespace, pod) (%s)", cpu, may)), s.Label)
	}
	for _, of := range []struct {
		counted, asked Column
		resource, used string
		policy         overcommit.ReclaimPolicy
	}{{CountedCPU, AskedCPU, "cpu", cpu, rules.CPU.Policy}, {CountedMemory, AskedMemory, "memory", memory, rules.Memory.Policy}} {
		asked := r.requested(of.resource)
		switch of.policy {
		case overcommit.ByUsage:
			if s.Batch {
				add(of.counted, byNode(of.used), s.Label)
			}
		case overcommit.ByRequest:
			add(of.counted, byNode(fmt.Sprintf("%s or %s", asked, of.used)), s.Label)
		case overcommit.ByMaxUsageRequest:
			add(of.counted, byNode(fmt.Sprintf("(%[1]s > %[2]s) or %[2]s or %[1]s", of.used, asked)), s.Label)
		}
		if rules.MinServicePercent > 0 {
			add(of.asked, byNode(asked), s.Label)
		}
	}
	return all
}

// A request is about some machines.
type request struct {
	Sources
	machines []Machine
	step     int64
}

// nodes returns the matcher of the names of the machines.
func (r request) nodes(label string) string {
	names := make([]string, len(r.machines))
	for i, m := range r.machines {
		names[i] = m.Name
	}
	return NodesOf(label, names)
}

// NodesOf returns the matcher of a label with one of these names.
func NodesOf(label string, names []string) string {
	all := make([]string, len(names))
	for i, name := range names {
		all[i] = literal(name)
	}
	return label + "=~" + strconv.Quote(strings.Join(all, "|"))
}

// containers are the labels that tell one container from another, and from its former
// run, whose counter began at 0. Two servers that both read it agree on them.
const containers = "namespace, pod, container, id"

// ofPods returns the matchers of the series of cAdvisor that are about containers. The
// sandbox of a pod is none: it has no name, or POD.
func (r request) ofPods() string {
	if r.Containers {
		return r.nodes(r.Label) + `,pod!="",container!="",container!="POD"`
	}
	return r.nodes(r.Label) + `,pod!="",container=""`
}

// sumOfPods returns the sum by pod of an expression about containers. within are the
// labels by which two series are the same one. Where only whole pods are known, the
// series without a name of a container are those of the pod and of its sandbox, of
// which the first is the greater one.
func (r request) sumOfPods(within, expression string) string {
	if !r.Containers {
		return fmt.Sprintf("max by (%s, namespace, pod) (%s)", r.Label, expression)
	}
	return fmt.Sprintf("sum by (%[1]s, namespace, pod) (max by (%[1]s, %[2]s) (%[3]s))", r.Label, within, expression)
}

func (r request) rateOfPods(metric string) string {
	return r.sumOfPods(containers, fmt.Sprintf("rate(%s[%ds])", r.Of(metric, r.ofPods()), r.Rate))
}

func (r request) cpuOfPods() string { return r.rateOfPods(cpuSeconds) }

// memoryOfPods counts a container that was started again within a step once.
func (r request) memoryOfPods() string {
	return r.sumOfPods("namespace, pod, container", fmt.Sprintf("max_over_time(%s[%ds])", r.Of(workingSet, r.ofPods()), r.step))
}

// others returns the pods of an expression that do not run on batch resources.
func (s Sources) others(pods string) string {
	if !s.Batch {
		return pods
	}
	return fmt.Sprintf("(%s unless on (namespace, pod) %s)", pods, s.Of("kube_pod_container_resource_requests", BatchResources))
}

// BatchResources matches the requests of batch resources in kube-state-metrics, which
// replaces characters of their names.
const BatchResources = `resource=~"kubernetes_io_batch_(cpu|memory)"`

// couldBeBatch returns an expression with a series for each pod that could be batch
// work, or "".
func (s Sources) couldBeBatch() string {
	var all []string
	if s.Owners {
		all = append(all, s.Of("kube_pod_owner", `owner_kind="Job"`))
	}
	if s.QoS {
		all = append(all, s.Of("kube_pod_status_qos_class", `qos_class="BestEffort"`)+" == 1")
	}
	return strings.Join(all, " or ")
}

// requested returns what the running pods request. kube-state-metrics keeps the requests
// of pods that have ended.
func (r request) requested(resource string) string {
	asked := fmt.Sprintf("sum by (node, namespace, pod) (max by (node, namespace, pod, container) (%s)) and on (namespace, pod) (%s == 1)",
		r.Of("kube_pod_container_resource_requests", r.nodes("node")+fmt.Sprintf(",resource=%q", resource)), r.Of("kube_pod_status_phase", `phase="Running"`))
	if r.Label == "node" {
		return "(" + asked + ")"
	}
	return fmt.Sprintf(`sum by (%[1]s, namespace, pod) (label_replace(%[2]s, %[1]q, "$1", "node", "(.*)"))`, r.Label, asked)
}

func (r request) exporterLabel() string {
	if r.Exporter != "" {
		return r.Exporter
	}
	return "node"
}

// exporter returns an expression about node_exporter's series, by node. Two series
// with the same labels within are one. Without a label with the name of the node,
// the node is the one that had the address at that time.
func (r request) exporter(sum, within string, of func(where string) string) string {
	if within != "" {
		within = ", " + within
	}
	if r.Exporter != "" {
		return fmt.Sprintf("%s by (%s) (max by (%[2]s%s) (%s))", sum, r.Exporter, within, of(r.nodes(r.Exporter)))
	}
	var addresses []string
	for _, m := range r.machines {
		for _, a := range m.Addresses {
			addresses = append(addresses, literal(a))
		}
	}
	where := "instance=~" + strconv.Quote(`\[?(`+strings.Join(addresses, "|")+`)\]?(:[0-9]+)?`)
	return fmt.Sprintf(`%s by (node) (max by (internal_ip%s) (label_replace(%s, "internal_ip", "$1", "instance", "\\[?(.*?)\\]?(:[0-9]+)?")) * on (internal_ip) group_left (node) topk by (internal_ip) (1, max by (internal_ip, node) (%s)))`, sum, within, of(where), r.Of("kube_node_info", r.nodes("node")))
}

// heldPercent is the share of its periods in which a container must be held back for a
// step to count.
const heldPercent = 25

// HeldQueries returns what to ask for the pods without batch resources that their own CPU
// limits held back: how large a part of their periods, at the steps with at least a
// quarter, and the time for which they were held back at those steps (CPU-seconds per
// second), or "".
func (s Sources) HeldQueries(machines []Machine, step int64) (share, lost string) {
	if !s.Held || s.Label == "" {
		return "", ""
	}
	r := request{Sources: s, machines: machines, step: step}
	share = r.others(fmt.Sprintf("(%s / %s) >= %d / 100", r.rateOfPods("container_cpu_cfs_throttled_periods_total"), r.rateOfPods("container_cpu_cfs_periods_total"), heldPercent))
	if s.HeldTime {
		lost = fmt.Sprintf("%s and (%s)", r.rateOfPods("container_cpu_cfs_throttled_seconds_total"), share)
	}
	return share, lost
}

// A Pod is a name of a pod.
type Pod struct{ Namespace, Name string }

// OwnerQuery returns what to ask for the controllers of pods in the last so many seconds.
func (s Sources) OwnerQuery(pods []Pod, seconds int64) string {
	namespaces, names := make([]string, len(pods)), make([]string, len(pods))
	for i, p := range pods {
		namespaces[i], names[i] = literal(p.Namespace), literal(p.Name)
	}
	who := "namespace=~" + strconv.Quote(strings.Join(namespaces, "|")) + ",pod=~" + strconv.Quote(strings.Join(names, "|"))
	return fmt.Sprintf("max by (namespace, pod, owner_kind, owner_name) (max_over_time(%s[%ds]))", s.Of("kube_pod_owner", who), seconds)
}

// literal returns a regular expression that matches s alone.
func literal(s string) string {
	var b strings.Builder
	for _, c := range s {
		if strings.ContainsRune(`\.+*?()|[]{}^$`, c) {
			b.WriteByte('\\')
		}
		b.WriteRune(c)
	}
	return b.String()
}
