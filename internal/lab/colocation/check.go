package colocation

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/lab/stat"
)

// A Check says what the machine was like just before an experiment that switches modes,
// and what the experiment can decide on it. The experiment runs whatever it says.
type Check struct {
	report.Others
	// Windows is the number of windows of a short start, in which the modes of the last
	// sentences took turns. Void of them do not count.
	Windows  int           `json:"windows"`
	Void     int           `json:"void_windows"`
	Expected []Expectation `json:"expected"`
}

// An Expectation is what the experiment can tell about the ratio of two modes.
type Expectation struct {
	Of      report.Mode `json:"of"`
	To      report.Mode `json:"to"`
	Measure string      `json:"measure"`
	// Scatter is the factor by which the ratio differs from round to round.
	Scatter report.Number `json:"round_ratio"`
	// Size is the smallest difference that 80 of 100 such experiments show. It is null if
	// so few rounds will count that there is no verdict.
	Size stat.Size `json:"size"`
}

// expectedOf returns the claims about whose ratios a check says what can be decided: those
// of the last sentences or, if these need other modes, all that compare latencies.
func expectedOf(modes []report.Mode) []SwitchedClaim {
	all := questions(modes)
	said := slices.DeleteFunc(slices.Clone(all), func(c SwitchedClaim) bool { about, _ := c.subject(); return about == "" })
	if len(said) > 0 {
		return said
	}
	return slices.DeleteFunc(all, func(c SwitchedClaim) bool { return c.Measure == workMeasure })
}

// TrialModes returns the modes that a short start needs, so that a check can say what an
// experiment with the given modes decides. There is none if it asks nothing.
func TrialModes(modes []report.Mode) []report.Mode {
	claims := expectedOf(modes)
	return slices.DeleteFunc(slices.Clone(modes), func(m report.Mode) bool {
		return !slices.ContainsFunc(claims, func(c SwitchedClaim) bool { return c.Of == m || c.To == m })
	})
}

// Expect fills in what the windows of a short start let expect of an experiment with so
// many starts and rounds of the modes. looks is the number of planned looks.
func (c *Check) Expect(windows []Window, modes []report.Mode, starts, rounds, looks int) {
	c.Windows, c.Void, c.Expected = len(windows), 0, nil
	byRound := map[int]map[report.Mode]Window{}
	for _, w := range windows {
		if len(w.Void) > 0 {
			c.Void++
			continue
		}
		if byRound[w.Round] == nil {
			byRound[w.Round] = map[report.Mode]Window{}
		}
		byRound[w.Round][w.Mode] = w
	}
	// A round counts if none of its windows is void.
	valid := 1 - float64(c.Void)/float64(max(c.Windows, 1))
	rounds = int(math.Round(float64(rounds) * math.Pow(valid, float64(len(modes)))))
	for _, claim := range expectedOf(modes) {
		var logs []float64
		for _, n := range slices.Sorted(maps.Keys(byRound)) {
			of, hasOf := byRound[n][claim.Of]
			to, hasTo := byRound[n][claim.To]
			if hasOf && hasTo {
				logs = append(logs, math.Log(claim.metric(of.Run)/claim.metric(to.Run)))
			}
		}
		alpha := stat.RatioError / 2 / float64(max(looks, 1)) // of "differs"
		if about, _ := claim.subject(); about != "" {
			alpha = SentenceError(modes, looks)
		}
		c.Expected = append(c.Expected, Expectation{
			Of: claim.Of, To: claim.To, Measure: claim.Measure, Scatter: scatter(logs), Size: stat.SizeOf(logs, starts, rounds, alpha),
		})
	}
}

// scatter returns the standard deviation of log ratios, as a factor.
func scatter(logs []float64) report.Number {
	logs = slices.DeleteFunc(slices.Clone(logs), func(v float64) bool { return !report.Number(v).Known() })
	sum, squares := 0.0, 0.0
	for _, v := range logs {
		sum += v / float64(len(logs))
	}
	for _, v := range logs {
		squares += (v - sum) * (v - sum)
	}
	return report.Number(report.KnownOrNaN(math.Exp(math.Sqrt(squares/float64(len(logs)-1))), len(logs) > 1))
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
		if size := e.Size; size.Ratio.Known() && size.Ratio > 1 { // records of older versions have none
			can = append(can, fmt.Sprintf("%s %% in %s, %s to %s (from so few seconds: %s to %s %%)",
				percentUp(size.Ratio), expectedWords[e.Measure], e.Of, e.To, percentUp(size.Least), percentUp(size.Most)))
		}
	}
	switch void := fmt.Sprintf("%d of %d windows of a trial were void", c.Void, c.Windows); {
	case c.Windows == 0:
		return "the modes allow no question, so nothing was tried"
	case len(can) == 0:
		return fmt.Sprintf("%s. As the machine is now, the run will decide nothing", void)
	case !c.IsQuiet():
		return fmt.Sprintf("%s. As the machine is now, most runs will show no difference below %s", void, strings.Join(can, ", or "))
	}
	return fmt.Sprintf("if its starts are alike, 80 of 100 such runs show a difference of %s", strings.Join(can, ", and of "))
}

// expectedWords name the measures within a sentence.
var expectedWords = map[string]string{report.P90.Key: "P90", report.WaitingTime.Key: "waiting"}

// percentUp prints by how many per cent a ratio is above 1, rounded up.
func percentUp(ratio report.Number) string {
	return report.FormatNumber(math.Ceil(100*float64(ratio-1)-1e-9), 0)
}
