package telemetry

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"tenon.sh/tenon/internal/agent/health"
	"tenon.sh/tenon/internal/agent/printable"
	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/decide/tick"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

// workloadLabels are the labels of every metric of a workload. namespace and pod are
// those of kube-state-metrics, and empty for a workload that is no pod.
var workloadLabels = []string{"workload", "class", "namespace", "pod"}

// labelsOf returns the values of workloadLabels.
func labelsOf(w node.Workload) []string {
	namespace, pod := podOf(w)
	return []string{label(w.ID), string(w.Class), namespace, pod}
}

func podOf(w node.Workload) (namespace, pod string) {
	if w.Pod {
		return w.ID.PodName()
	}
	return "", ""
}

var (
	descLastTick    = desc("tenon_last_tick_timestamp_seconds", "When the node was read last, in seconds since 1970.")
	descWorkloads   = desc("tenon_workloads", "Workloads that the rules match.", "class")
	descClassMemory = desc("tenon_class_memory_bytes", "Memory charged to the workloads of each class, with page cache.", "class")
	descLimit       = desc("tenon_be_cpu_limit_cores", "CPUs that best-effort work may use where it meets other work, by the knob that limits it.", "knob")
	descShadow      = desc("tenon_shadow_steps_total", "Writes of knobs that tenond would have made if it did not only observe, by the policy that owns the knob.", "policy")
	descHeld        = desc("tenon_knobs_held", "Knobs that were not as they were before Tenon when the last tick began.")
	descTrouble     = desc("tenon_trouble", "1 while the agent itself has trouble of this kind: config, state, lost, bounds, contested, refused, exposed, unread.", "kind")
	descFailing     = desc("tenon_knobs_failing", "Knobs that the last tick could not write.")

	descNodeCPUs   = desc("tenon_node_cpus", "Online CPUs.")
	descNodeCPU    = desc("tenon_node_cpu_seconds_total", "CPU time used on the node, by all processes.")
	descNodeSteal  = desc("tenon_node_steal_seconds_total", "CPU time that a hypervisor kept from the node.")
	descNodeMemory = desc("tenon_node_memory_used_bytes", "Memory of the node that is not available to new work.")
	descNodeSize   = desc("tenon_node_memory_size_bytes", "Memory of the node.")

	descWorkloadCPU       = desc("tenon_workload_cpu_seconds_total", "CPU time used by a workload.", workloadLabels...)
	descWorkloadThrottled = desc("tenon_workload_throttled_seconds_total", "Time for which its own CPU quota has held a workload back.", workloadLabels...)
	descWorkloadMemory    = desc("tenon_workload_memory_bytes", "Memory charged to a workload, with page cache.", workloadLabels...)
	descOmitted           = desc("tenon_workloads_omitted", "Workloads that have no metrics of their own because there are too many.")
)

// lastTick collects metrics from the results of the last tick.
type lastTick struct{ m *Metrics }

// Describe sends nothing, because the metrics depend on the node.
func (lastTick) Describe(chan<- *prometheus.Desc) {}

// Collect emits the metrics of the last tick that could read the node.
func (c lastTick) Collect(to chan<- prometheus.Metric) {
	c.m.mu.Lock()
	t := c.m.last // later ticks have snapshots of their own, so this one does not change
	c.m.mu.Unlock()
	for _, kind := range health.Kinds {
		bad := 0.0
		if c.m.health.Err(kind) != nil {
			bad = 1
		}
		emitter(to).gauge(descTrouble, bad, string(kind))
	}
	if t.Snapshot.At.IsZero() {
		return
	}
	s := t.Snapshot
	e := emitter(to)
	at := float64(t.Begun.UnixNano()) / 1e9 // alerts compare it with their own clock
	e.gauge(descLastTick, at)
	e.gauge(descNodeCPUs, float64(len(s.Topology.CPUs)))
	e.seconds(descNodeCPU, s.Usage.CPU)
	e.seconds(descNodeSteal, s.Usage.Steal)
	e.bytes(descNodeMemory, s.Usage.Memory)
	e.bytes(descNodeSize, s.MemoryTotal)
	e.emitNodeSLO(s.Usage)
	if t.Shadow == nil {
		e.emitIsolation(t.Selection, t.Trials, t.Isolation)
	} else {
		for owner, n := range t.Shadow.Total {
			e <- prometheus.MustNewConstMetric(descShadow, prometheus.CounterValue, float64(n), owner.String())
		}
	}
	e.gauge(descHeld, float64(len(s.Knobs.Before)))
	e.gauge(descFrozen, countFrozen(s))
	failing := 0
	for _, o := range t.Done {
		if o.Err != nil {
			failing++
		}
	}
	e.gauge(descFailing, float64(failing))
	e.emitBatch(t.Batch)
	e.emitPromises(t.Promises)
	e.emitOutlook(t.Outlook)
	e.emitCache(s.Cache)
	e.emitWatermark(t.Watermark)
	for file, cores := range limitsOfBE(t) {
		e.gauge(descLimit, cores, string(file))
	}
	for _, class := range node.Classes {
		n, memory := 0, node.Maybe[unit.Bytes]{}
		for _, w := range s.Workloads {
			if w.Class != class {
				continue
			}
			n++
			if used, known := w.Usage.Memory.Value(); known {
				memory = node.Some(memory.Or(0) + used)
			}
		}
		if n == 0 {
			memory = node.Some[unit.Bytes](0)
		}
		e.gauge(descWorkloads, float64(n), string(class))
		e.bytes(descClassMemory, memory, string(class))
	}
	shown, omitted := chooseWorkloads(s.Workloads)
	used := make(map[string]bool, len(shown))
	for _, w := range shown {
		if used[label(w.ID)] { // another name that looks the same: two equal labels would be an error
			omitted++
			continue
		}
		used[label(w.ID)] = true
		labels := labelsOf(w)
		e.seconds(descWorkloadCPU, w.Usage.CPU, labels...)
		e.seconds(descWorkloadThrottled, w.Usage.Throttled, labels...)
		e.bytes(descWorkloadMemory, w.Usage.Memory, labels...)
		e.emitDelay(w.Usage.Delay, labels...)
		e.emitSLO(t, w, labels...)
	}
	e.emitMisfits(t.Misfits)
	e.emitWaits(s, shown)
	e.gauge(descOmitted, float64(omitted))
}

// label returns the name of a workload as a label. A label must be valid UTF-8, and
// the text format of Prometheus escapes no control characters but line feeds. The
// name of a cgroup may be anything.
func label(id node.WorkloadID) string { return printable.Text(string(id)) }

// limitsOfBE returns how many CPUs all best-effort work may use, by the kind of
// knob that sets the limit. A kind without a limit is absent.
func limitsOfBE(t tick.Tick) map[node.File]float64 {
	if t.Shadow != nil {
		return nil // what the tick wants is not in force
	}
	meets := map[node.CgroupPath]bool{}
	for _, w := range t.Snapshot.Workloads {
		if w.Class == node.BE {
			meets[w.ContentionRoot] = true
		}
	}
	all := map[node.File]float64{}
	var cpus unit.CPUSet
	for _, w := range t.Wants {
		if w.Intent != plan.Set || !w.BE || !meets[w.Knob.Cgroup] {
			continue
		}
		switch v := w.Value.(type) {
		case node.CPUMax:
			if v.Quota != node.NoQuota {
				all[node.FileCPUMax] += v.Cores()
			}
		case node.CPUs:
			if w.Knob.File == node.FileCPUs {
				cpus = cpus.Union(v.Set) // contention roots may share CPUs
				all[node.FileCPUs] = float64(cpus.Len())
			}
		}
	}
	return all
}

// An emitter sends metrics to Prometheus. It sends nothing for a missing value.
type emitter chan<- prometheus.Metric

func (e emitter) gauge(d *prometheus.Desc, v float64, labels ...string) {
	e <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
}

func (e emitter) bytes(d *prometheus.Desc, v node.Maybe[unit.Bytes], labels ...string) {
	if b, known := v.Value(); known {
		e.gauge(d, float64(b), labels...)
	}
}

func (e emitter) seconds(d *prometheus.Desc, v node.Maybe[time.Duration], labels ...string) {
	if t, known := v.Value(); known {
		e <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, t.Seconds(), labels...)
	}
}
