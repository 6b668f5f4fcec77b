package telemetry

import (
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

var (
	descBatchCPU        = desc("tenon_batch_cpu_cores", "CPUs that batch work may count on.")
	descBatchCPUTerm    = desc("tenon_batch_cpu_term_cores", "What makes tenon_batch_cpu_cores: the terms add up to it, below 0 what is taken away.", "term")
	descBatchMemory     = desc("tenon_batch_memory_bytes", "Memory that batch work may count on.")
	descBatchMemoryTerm = desc("tenon_batch_memory_term_bytes", "What makes tenon_batch_memory_bytes: the terms add up to it, below 0 what is taken away.", "term")
	descBatchDegraded   = desc("tenon_batch_degraded", "1: an input of the amount is missing, so that it does not rise, and in the end is 0.", "resource")
)

// emitBatch emits the batch resources (CPU and memory that BE pods may request), if any.
func (e emitter) emitBatch(b node.Batch) {
	if !b.Enabled() {
		return
	}
	e.gauge(descBatchCPU, b.CPU.Value.Cores())
	for _, t := range b.CPU.Terms {
		e.gauge(descBatchCPUTerm, t.Amount.Cores(), string(t.Name))
	}
	e.gauge(descBatchMemory, float64(b.Memory.Value))
	for _, t := range b.Memory.Terms {
		e.gauge(descBatchMemoryTerm, float64(t.Amount), string(t.Name))
	}
	degraded(e, "cpu", b.CPU)
	degraded(e, "memory", b.Memory)
}

func degraded[T unit.MilliCPU | unit.Bytes](e emitter, resource string, a node.Amount[T]) {
	is := 0.0
	if a.Degraded != "" {
		is = 1
	}
	e.gauge(descBatchDegraded, is, resource)
}
