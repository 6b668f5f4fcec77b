package telemetry

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"tenon.sh/tenon/internal/decide/misfit"
	"tenon.sh/tenon/internal/decide/slo"
	"tenon.sh/tenon/internal/decide/tick"
	"tenon.sh/tenon/internal/model/node"
)

var (
	descMissed  = desc("tenon_objective_missed", "1: the workload misses its objective now, because of best-effort work or for another reason.", workloadLabels...)
	descVerdict = desc("tenon_objective_verdict", "1, with the verdict about an objective and its cause.", append(workloadLabels, "verdict", "cause")...)
	descLasted  = desc("tenon_objective_verdict_seconds_total", "Time for which each verdict about an objective was in force, since the agent started or the objective changed.", append(workloadLabels, "verdict")...)
	descTarget  = desc("tenon_request_target_seconds", "Time within which this percentile of the requests of a workload should be answered.", append(workloadLabels, "percentile")...)
	descTail    = desc("tenon_request_latency_seconds", "Time within which this percentile of the requests of a workload was answered in the last window with a verdict: the target that decided it.", append(workloadLabels, "percentile")...)
	descAsked   = desc("tenon_requests_total", "Requests of a workload with an objective for them, since their source began: those whose time is known, and those of which the source could not tell it.", append(workloadLabels, "time")...)
	descSource  = desc("tenon_request_source_trouble", "1, with the reason why the requests of a workload cannot be read.", append(workloadLabels, "trouble")...)
	descBound   = desc("tenon_workload_bound_cores", "CPU that a BE workload may use, because a service (victim) waited mostly for it.", append(workloadLabels, "victim")...)

	descMisfit  = desc("tenon_cpu_misfit", "1: the CPU limit does not fit the workload, because of its threads or its limit (kind).", append(workloadLabels, "kind")...)
	descMisfits = desc("tenon_cpu_misfits", "Workloads that their CPU limit does not fit, by kind.", "kind")

	descNodePressure   = desc("tenon_node_pressure_seconds_total", "Time in which some tasks of the node, or all of them, waited for a resource (PSI).", "resource", "tasks")
	descNodeWorkingSet = desc("tenon_node_working_set_bytes", "Memory of the node in use, without page cache that was not used lately.")
	descNodeRefaults   = desc("tenon_node_refaults_total", "Pages that were read back soon after they had been reclaimed.")
	descNodeFree       = desc("tenon_node_memory_free_bytes", "Memory of the node that holds nothing, not even page cache.")
	descNodeRead       = desc("tenon_node_read_bytes_total", "Bytes read from block devices.")
	descNodeWritten    = desc("tenon_node_written_bytes_total", "Bytes written to block devices.")

	descPressure   = desc("tenon_workload_pressure_seconds_total", "Time in which some tasks of a workload waited for a resource (PSI).", append(workloadLabels, "resource")...)
	descWorkingSet = desc("tenon_workload_working_set_bytes", "Memory charged to a workload without page cache that was not used lately.", workloadLabels...)
	descRefaults   = desc("tenon_workload_refaults_total", "Pages of a workload that were read back soon after they had been reclaimed.", workloadLabels...)
	descReclaimed  = desc("tenon_workload_reclaim_bytes_total", "Memory of a best-effort workload that Tenon has asked the kernel to reclaim (asked), and that the kernel reclaimed meanwhile (got), since the agent started.", append(workloadLabels, "amount")...)
	descReclaim    = desc("tenon_workload_reclaim_step_bytes", "Memory of a best-effort workload that the next step of the reclaim asks for.", workloadLabels...)
	descPeriods    = desc("tenon_workload_quota_periods_total", "Periods of the workload's own CPU quota in which it ran, by outcome: throttled or free.", append(workloadLabels, "outcome")...)
	descRead       = desc("tenon_workload_read_bytes_total", "Bytes that a workload has read from block devices.", workloadLabels...)
	descWritten    = desc("tenon_workload_written_bytes_total", "Bytes that a workload has written to block devices.", workloadLabels...)
)

// emitNodeSLO emits the pressure, the memory and the I/O of the node.
func (e emitter) emitNodeSLO(u node.Usage) {
	for resource, s := range stallsOf(u.Pressure) {
		e.seconds(descNodePressure, s.Some, resource, "some")
		e.seconds(descNodePressure, s.Full, resource, "all")
	}
	e.bytes(descNodeWorkingSet, u.WorkingSet)
	count(e, descNodeRefaults, u.Refaults)
	e.bytes(descNodeFree, u.Free)
	count(e, descNodeRead, u.Read)
	count(e, descNodeWritten, u.Written)
}

// emitSLO emits the pressure, memory and I/O of a workload. It also emits whether
// the workload misses its objective.
func (e emitter) emitSLO(t tick.Tick, w node.Workload, labels ...string) {
	if j, has := t.Objectives[w.ID]; has {
		e.emitObjective(j, t.Lasted[w.ID], w, labels)
	}
	if b, bounded := t.Single[w.ID]; bounded {
		e.gauge(descBound, float64(b.May)/1000, append(labels[:len(labels):len(labels)], label(b.Victim))...)
	}
	if m, is := t.Misfits[w.ID]; is {
		e.gauge(descMisfit, 1, append(labels[:len(labels):len(labels)], string(m.Kind))...)
	}
	with := func(label string) []string { return append(labels[:len(labels):len(labels)], label) }
	u := w.Usage
	for resource, s := range stallsOf(u.Pressure) {
		e.seconds(descPressure, s.Some, with(resource)...)
	}
	e.bytes(descWorkingSet, u.WorkingSet, labels...)
	count(e, descRefaults, u.Refaults, labels...)
	if work := t.Reclaim.Work[w.ID]; work != nil {
		count(e, descReclaimed, node.Some(u.Reclaim.Asked), with("asked")...)
		count(e, descReclaimed, node.Some(u.Reclaim.Got), with("got")...)
		e.gauge(descReclaim, float64(work.Step), labels...)
	}
	count(e, descRead, u.Read, labels...)
	count(e, descWritten, u.Written, labels...)
	all, _ := u.Periods.Value() // 0: unknown, or without a quota there are none
	if throttled, known := u.ThrottledPeriods.Value(); known && all > 0 {
		count(e, descPeriods, node.Some(throttled), with("throttled")...)
		count(e, descPeriods, node.Some(max(all-throttled, 0)), with("free")...)
	}
}

// emitObjective emits the verdict about an objective, and for how long each verdict
// has lasted. Without a verdict, nothing says whether the objective is missed.
func (e emitter) emitObjective(j slo.Judgement, lasted slo.Lasted, w node.Workload, labels []string) {
	e.gauge(descVerdict, 1, append(labels[:len(labels):len(labels)], string(j.Verdict), string(j.Cause))...)
	for v, d := range map[slo.Verdict]time.Duration{slo.Kept: lasted.Kept, slo.Missed: lasted.Missed, slo.Undecided: lasted.Undecided} {
		e.seconds(descLasted, node.Some(d), append(labels[:len(labels):len(labels)], string(v))...)
	}
	e.emitRequests(j.Requests, labels)
	e.emitAsked(w.Usage.Requests, labels)
	switch j.Verdict {
	case slo.Missed:
		e.gauge(descMissed, 1, labels...)
	case slo.Kept:
		e.gauge(descMissed, 0, labels...)
	}
}

// emitRequests emits the objective for requests and what was measured of them.
func (e emitter) emitRequests(j slo.RequestJudgement, labels []string) {
	with := func(label string) []string { return append(labels[:len(labels):len(labels)], label) }
	for i, p := range node.Percentiles {
		if within := j.Want.Within[i]; within > 0 {
			e.gauge(descTarget, within.Seconds(), with(p.Name)...)
		}
	}
	if tail, known := j.Tail.Value(); known {
		e.gauge(descTail, tail.Seconds(), with(node.Percentiles[j.Target].Name)...)
	}
	if j.Trouble != "" {
		e.gauge(descSource, 1, with(string(j.Trouble))...)
	}
}

// emitAsked emits how many requests the source has counted.
func (e emitter) emitAsked(r node.Requests, labels []string) {
	if r.At.IsZero() {
		return
	}
	known := uint64(0)
	for _, n := range r.Counts {
		known += n
	}
	for time, n := range map[string]uint64{"known": known, "unknown": r.Unsure} {
		e <- prometheus.MustNewConstMetric(descAsked, prometheus.CounterValue, float64(n), append(labels[:len(labels):len(labels)], time)...)
	}
}

// emitMisfits emits the number of misfits (workloads whose CPU limit does not fit
// them) by kind. Workloads without metrics of their own count, too.
func (e emitter) emitMisfits(found map[node.WorkloadID]*misfit.Misfit) {
	for _, kind := range misfit.Kinds {
		n := 0
		for _, m := range found {
			if m.Kind == kind {
				n++
			}
		}
		e.gauge(descMisfits, float64(n), string(kind))
	}
}

// stallsOf returns the pressure by resource, with the kernel's names.
func stallsOf(p node.Pressure) map[string]node.Stall {
	return map[string]node.Stall{"cpu": p.CPU, "memory": p.Memory, "io": p.IO}
}

// count emits a counter of events, pages or bytes.
func count[T ~int64](e emitter, d *prometheus.Desc, v node.Maybe[T], labels ...string) {
	if n, known := v.Value(); known {
		e <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
	}
}
