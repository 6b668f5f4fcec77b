package telemetry

import (
	"strconv"

	"tenon.sh/tenon/internal/decide/promise"
	"tenon.sh/tenon/internal/model/unit"
)

var (
	descPromisedCPU    = desc("tenon_promised_cpu_cores", "CPUs that batch work may count on for that many hours from the last full hour (UTC) on, with that probability in percent.", "hours", "percent")
	descPromisedMemory = desc("tenon_promised_memory_bytes", "Memory that batch work may count on for that many hours from the last full hour (UTC) on, with that probability in percent.", "hours", "percent")
	descPromisesJudged = desc("tenon_promises_judged", "Promises of the last four to eight weeks whose end is known.", "resource", "hours", "percent")
	descPromisesKept   = desc("tenon_promises_kept", "Promises of the last four to eight weeks that came true.", "resource", "hours", "percent")
)

// emitPromises emits how much of the batch resources lasts. An amount that is not
// promised yet is absent.
func (e emitter) emitPromises(all []promise.Promise) {
	for _, p := range all {
		hours, percent := strconv.Itoa(p.Hours), strconv.FormatInt(int64(p.Percent), 10)
		if p.CPU.Code == promise.Known {
			e.gauge(descPromisedCPU, p.CPU.Value.Cores(), hours, percent)
		}
		if p.Memory.Code == promise.Known {
			e.gauge(descPromisedMemory, float64(p.Memory.Value), hours, percent)
		}
		judged(e, "cpu", p.CPU, hours, percent)
		judged(e, "memory", p.Memory, hours, percent)
	}
}

func judged[T unit.MilliCPU | unit.Bytes](e emitter, resource string, a promise.Amount[T], hours, percent string) {
	e.gauge(descPromisesJudged, float64(a.Judged), resource, hours, percent)
	e.gauge(descPromisesKept, float64(a.Kept), resource, hours, percent)
}
