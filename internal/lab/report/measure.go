package report

// A Measure is a metric about which claims are made.
type Measure struct {
	Key  string // in result.json and in the names of claims
	Name string // in sentences
	Of   Metric
	// Margin is the ratio from which two values count as different. 0 means the
	// margin of the experiment.
	Margin float64
}

// MarginOf returns the Margin. If it is 0, MarginOf returns the margin of the experiment.
func (m Measure) MarginOf(e Experiment) float64 {
	if m.Margin > 0 {
		return m.Margin
	}
	return e.Margin
}

// DelayMargin is the Margin for run-queue delays.
const DelayMargin = 1.10

// The measures. Claims about the latency of a service are judged in the order
// P90, mean, P99. P99 comes last because it needs by far the most blocks: in a
// run of a few seconds, the P99 depends on some hundred requests.
var (
	P90         = Measure{Key: "p90", Name: "P90", Of: Percentiles["p90"]}
	Mean        = Measure{Key: "mean", Name: "mean response time", Of: Percentiles["mean"]}
	P99         = Measure{Key: "p99", Name: "P99", Of: Percentiles["p99"]}
	WaitingTime = Measure{Key: "waiting", Name: "waiting for a CPU", Of: Waiting, Margin: DelayMargin}
)

// Latencies are the measures of a service's latency in the order in which claims
// about them are judged.
var Latencies = []Measure{P90, Mean, P99}

// controlled lists the measures for which there is an A/A control.
var controlled = []Measure{P90, Mean, P99, WaitingTime}
