package telemetry

import (
	"tenon.sh/tenon/internal/decide/suppresscost"
	"tenon.sh/tenon/internal/model/node"
)

var (
	descThreshold = desc("tenon_suppress_threshold_ratio", "The owner's threshold of CPU suppress (cpuSuppressThresholdPercent), as a share of the CPUs.")
	descWithheld  = desc("tenon_suppress_withheld_cpu_seconds_total", "CPU time that stayed idle while best-effort work used all that the threshold let it: the most that the threshold cost.")
	descReached   = desc("tenon_suppress_reached_seconds_total", "Time in which best-effort work used all that the threshold let it.")
)

// emitWatermark emits the cost of the threshold of CPU suppress for BE, if there is a threshold.
func (e emitter) emitWatermark(w suppresscost.Watermark) {
	if !w.HasThreshold() {
		return
	}
	e.gauge(descThreshold, float64(w.Percent)/100)
	e.seconds(descWithheld, node.Some(w.Withheld))
	e.seconds(descReached, node.Some(w.Reached))
}
