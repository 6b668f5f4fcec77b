package colocation

import (
	"fmt"
	"math"
	"strings"

	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/lab/stat"
)

// A Check says what the machine was like just before an experiment that switches modes,
// and what the experiment can decide on it. The experiment runs whatever it says.
type Check struct {
	report.Others
	// Windows is the number of windows of a short start, in which the service ran
	// beside batch work and no mode changed. Void of them do not count.
	Windows  int           `json:"windows"`
	Void     int           `json:"void_windows"`
	Expected []Expectation `json:"expected"`
}

// An Expectation is what the experiment can tell about a measure.
type Expectation struct {
	Measure string `json:"measure"`
	// Scatter is the ratio by which neighbouring windows of one mode differ.
	Scatter report.Number `json:"neighbour_ratio"`
	// Reach is the distance from the ratio of two modes to its bounds that is to be
	// expected, as a ratio. It is null if so few rounds will count that there is no
	// verdict.
	Reach report.Number `json:"expected_reach"`
}

// Expect fills in what the windows of a short start let expect of an experiment with so
// many starts and rounds of modes. looks is the number of planned looks.
func (c *Check) Expect(windows []Window, starts, rounds, modes, looks int) {
	c.Windows, c.Void, c.Expected = len(windows), 0, nil
	for _, w := range windows {
		if len(w.Void) > 0 {
			c.Void++
		}
	}
	// A round counts if none of its windows is void.
	valid := 1 - float64(c.Void)/float64(max(c.Windows, 1))
	rounds = int(math.Round(float64(rounds) * math.Pow(valid, float64(modes))))
	for _, m := range []struct {
		measure string
		of      report.Metric
	}{{report.P90.Key, allP90}, {report.WaitingTime.Key, report.Waiting}} {
		var logs []float64
		for i := 1; i < len(windows); i++ {
			if a, b := windows[i-1], windows[i]; len(a.Void) == 0 && len(b.Void) == 0 {
				logs = append(logs, math.Log(m.of(b.Run)/m.of(a.Run)))
			}
		}
		c.Expected = append(c.Expected, Expectation{
			Measure: m.measure, Scatter: scatter(logs),
			Reach: stat.ExpectedReach(logs, starts, rounds, stat.RatioError/float64(max(looks, 1))),
		})
	}
}

// scatter returns the root of the mean square of log ratios, as a ratio.
func scatter(logs []float64) report.Number {
	sum, n := 0.0, 0
	for _, v := range logs {
		if report.Number(v).Known() {
			sum, n = sum+v*v, n+1
		}
	}
	return report.Number(report.KnownOrNaN(math.Exp(math.Sqrt(sum/float64(n))), n > 0))
}

// The limits up to which a machine counts as quiet, and from which a program has a name
// in the text.
const (
	quietOthers  = 0.1  // share of all CPUs
	quietSteal   = 0.01 // share of the tested CPUs
	namedProgram = 0.05 // CPUs
	namedMost    = 3    // programs
)

// IsQuiet reports whether nothing else disturbs the machine.
func (c *Check) IsQuiet() bool {
	return float64(c.Used) <= quietOthers*float64(c.CPUs) && !(c.Steal > quietSteal) && 2*c.Void <= c.Windows
}

// Lines says for the user what the check found.
func (c *Check) Lines() []string {
	if c == nil {
		return nil
	}
	return []string{"before the run: " + c.machine(), "before the run: " + c.outlook()}
}

// machine says who else uses the machine.
func (c *Check) machine() string {
	var named []string
	for _, p := range c.Programs {
		if p.CPUs >= namedProgram && len(named) < namedMost {
			named = append(named, fmt.Sprintf("%s %.1f", p.Name, p.CPUs))
		}
	}
	text := fmt.Sprintf("other work uses %s of %d CPUs", report.FormatNumber(c.Used, 1), c.CPUs)
	if float64(c.Used) <= quietOthers*float64(c.CPUs) {
		named = nil
	}
	if len(named) > 0 {
		text += " (" + strings.Join(named, ", ") + ")"
	}
	text += fmt.Sprintf(", %s of the tested ones", report.FormatNumber(c.Tested, 1))
	if c.Steal.Known() {
		text += fmt.Sprintf("; the hypervisor keeps %s %% of these", report.Scaled(c.Steal, 100, 1))
	}
	if c.Waited.Known() {
		text += fmt.Sprintf("; a task waits for a CPU in %s %% of the time", report.Scaled(c.Waited, 100, 0))
	}
	return text
}

// outlook says what the run will decide, if the machine stays as it is.
func (c *Check) outlook() string {
	var can []string
	for _, e := range c.Expected {
		if e.Reach.Known() {
			can = append(can, fmt.Sprintf("%s %% in %s", percentUp(e.Reach), expectedWords[e.Measure]))
		}
	}
	switch void := fmt.Sprintf("%d of %d windows of a trial were void", c.Void, c.Windows); {
	case len(can) == 0:
		return fmt.Sprintf("%s. As the machine is now, the run will decide nothing", void)
	case !c.IsQuiet():
		return fmt.Sprintf("%s. As the machine is now, the run will decide nothing smaller than about %s", void, strings.Join(can, " and "))
	}
	return fmt.Sprintf("if its starts are alike, the run can decide differences of about %s", strings.Join(can, " and "))
}

// expectedWords name the measures within a sentence.
var expectedWords = map[string]string{report.P90.Key: "P90", report.WaitingTime.Key: "waiting"}

// percentUp prints by how many per cent a ratio is above 1, rounded up.
func percentUp(ratio report.Number) string {
	return report.FormatNumber(math.Ceil(100*float64(ratio-1)-1e-9), 0)
}
