package report

// A Measure is a metric that claims are about.
type Measure struct {
	Key  string // in result.json and in the names of claims
	Name string // in sentences
	Of   Metric
	// Margin is the ratio that counts as a difference; 0: the margin of the
	// experiment.
	Margin float64
}

// MarginOf returns the ratio that counts as a difference in an experiment.
func (m Measure) MarginOf(e Experiment) float64 {
	if m.Margin > 0 {
		return m.Margin
	}
	return e.Margin
}

// DelayMargin is the ratio of run-queue delays that counts as a difference.
const DelayMargin = 1.10

// The measures. Claims about the latency of a service are judged in the order
// P90, mean, P99: a P99 of a few seconds depends on some hundred requests, and
// needs by far the most blocks.
var (
	P90         = Measure{Key: "p90", Name: "P90", Of: Percentiles["p90"]}
	Mean        = Measure{Key: "mean", Name: "mean response time", Of: Percentiles["mean"]}
	P99         = Measure{Key: "p99", Name: "P99", Of: Percentiles["p99"]}
	WaitingTime = Measure{Key: "waiting", Name: "waiting for a CPU", Of: Waiting, Margin: DelayMargin}
)

// Latencies are the measures of a service's latency in the order in which claims
// about them are judged.
var Latencies = []Measure{P90, Mean, P99}

// controlled lists the measures with an A/A control.
var controlled = []Measure{P90, Mean, P99, WaitingTime}
