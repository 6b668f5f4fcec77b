package telemetry

import "tenon.sh/tenon/internal/decide/prospect"

var (
	descOutlookCPU        = desc("tenon_outlook_cpu_cores", "CPUs that batch work could have requested in the last days: a quantile of the minutes.", "quantile")
	descOutlookMeanCPU    = desc("tenon_outlook_mean_cpu_cores", "The same as a mean.")
	descOutlookMemory     = desc("tenon_outlook_memory_bytes", "Memory that batch work could have requested in the last days: a quantile of the minutes.", "quantile")
	descOutlookMeanMemory = desc("tenon_outlook_mean_memory_bytes", "The same as a mean.")
)

// lowQuantile is the quantile of prospect.Spread.Low.
const lowQuantile = "0.05"

// emitOutlook emits what the history says about room for batch work, if there is one.
func (e emitter) emitOutlook(o *prospect.Outlook) {
	if o == nil {
		return
	}
	if cpu := o.All.CPU; cpu.Steps > 0 {
		e.gauge(descOutlookCPU, cpu.Low.Cores(), lowQuantile)
		e.gauge(descOutlookMeanCPU, cpu.Mean.Cores())
	}
	if memory := o.All.Memory; memory.Steps > 0 {
		e.gauge(descOutlookMemory, float64(memory.Low), lowQuantile)
		e.gauge(descOutlookMeanMemory, float64(memory.Mean))
	}
}
