package report

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"tenon.sh/tenon/internal/lab/stat"
)

// A Cause is a kind of reason why a run is void.
type Cause string

// The causes, from the least to the one that outweighs the others: a disturbance may
// have caused the failure of the service.
const (
	NotVoid Cause = ""
	// Failed: the service failed requests, or answered too few of them. Beside
	// batch work, that is what the mode does to the service, and not a fault of
	// the measurement.
	Failed Cause = "the service failed"
	// Disturbed: the hypervisor, other work or the client spoiled the run.
	Disturbed Cause = "disturbed"
	// NotItsMode: the run did not measure its mode, for example because another
	// isolation mechanism was in use.
	NotItsMode Cause = "not its mode"
)

// causes has the causes, each after those that it outweighs.
var causes = []Cause{NotVoid, Failed, Disturbed, NotItsMode}

// Discard makes a run void if there are reasons.
func (r *Run) Discard(cause Cause, reasons ...string) {
	if len(reasons) > 0 && slices.Index(causes, cause) > slices.Index(causes, r.Cause) {
		r.Cause = cause
	}
	r.Void = append(r.Void, reasons...)
}

// VoidCause returns the cause for which a run is void.
func (r Run) VoidCause() Cause {
	if slices.Contains(causes[1:], r.Cause) {
		return r.Cause
	}
	return causeOfTexts(r.Void)
}

// The reasons of runs without a cause came from package load and from package
// harness. A submission had causes in place of the reasons.
var (
	failedReason = regexp.MustCompile(`^((connect|write|read|answer|status|timeout|unsent) errors: |socket errors: (read|write|timeout) |` +
		`\d+ of \d+ answers had a status |no request was answered|only [\d.]+ % of the offered rate was answered|` + string(Failed) + `$)`)
	disturbedReason = regexp.MustCompile(`^(the hypervisor kept |other work used |the client |latency took |` + string(Disturbed) + `$)`)
)

// causeOfTexts returns the cause of a run from the texts of its reasons. The raw data
// of older experiments has nothing else.
func causeOfTexts(reasons []string) Cause {
	var r Run
	for _, text := range reasons {
		switch {
		case disturbedReason.MatchString(text):
			r.Discard(Disturbed, text)
		case failedReason.MatchString(text):
			r.Discard(Failed, text)
		default:
			r.Discard(NotItsMode, text)
		}
	}
	return r.Cause
}

// count returns how many runs of a mode are void for a cause, and the number of
// all runs that measured the mode.
func (ev Evidence) count(mode Mode, cause Cause) (void, tries int) {
	for _, r := range ev.all {
		if r.Mode != mode {
			continue
		}
		switch r.VoidCause() {
		case NotItsMode:
			continue
		case cause:
			void++
		}
		tries++
	}
	return void, tries
}

// Failures returns in how many runs of a mode the service failed, and the number
// of all runs that measured the mode. It counts only modes with batch work beside
// the service: a service that fails alone has too high a load.
//
// Such a run is void, because it lacks the latencies of those requests that were
// not answered, and is repeated. The repetition does not undo the failure, so
// nothing may be claimed in favour of the mode.
func (ev Evidence) Failures(mode Mode) (failed, tries int) {
	failed, tries = ev.count(mode, Failed)
	if s := mode.Spec(); !s.Batch || s.Alone {
		failed = 0
	}
	return failed, tries
}

func (ev Evidence) failureText(mode Mode) string {
	failed, tries := ev.Failures(mode)
	return fmt.Sprintf("in %d of %d runs of %s the service failed requests or answered too few of them", failed, tries, mode)
}

// selectionLevel is the p value below which the modes count as disturbed to
// different degrees.
const selectionLevel = 0.05

// selectionText returns "" if disturbances made about the same share of the runs
// of the given modes void. Otherwise it returns a text with the shares. Then
// voiding does not remove bad moments of the machine, but outcomes of the modes,
// and the runs that remain of a mode with many void runs are a selection.
//
// The test is that of Fisher for the pair of modes that differs most. Its p value
// is multiplied by the number of pairs (Bonferroni).
func (ev Evidence) selectionText(modes []Mode) string {
	var shares []string
	p, pairs := 1.0, 0
	for i, m := range modes {
		a, n := ev.count(m, Disturbed)
		if n == 0 {
			continue
		}
		shares = append(shares, fmt.Sprintf("%s %d of %d", m, a, n))
		for _, other := range modes[:i] {
			if b, k := ev.count(other, Disturbed); k > 0 {
				p = min(p, stat.Fisher(a, n, b, k))
				pairs++
			}
		}
	}
	if p *= float64(pairs); p >= selectionLevel || pairs == 0 {
		return ""
	}
	return fmt.Sprintf("disturbances made unequal shares of the runs void (%s; p = %.2g)", strings.Join(shares, ", "), p)
}

// FirstTries returns the evidence of the first run of each mode and block. A run
// that a disturbance made void counts, and its repetition does not. So nothing is
// selected, but the numbers contain the disturbances.
func (ev Evidence) FirstTries() Evidence {
	type cell struct {
		mode  Mode
		block int
	}
	seen := map[cell]bool{}
	var first []Run
	for _, r := range ev.all {
		if cause := r.VoidCause(); cause != NotVoid && cause != Disturbed || seen[cell{r.Mode, r.Block}] {
			continue
		}
		seen[cell{r.Mode, r.Block}] = true
		r.Void, r.Cause = nil, NotVoid
		first = append(first, r)
	}
	return Gather(ev.Experiment, first)
}

// Holds reports whether a decision in favour of a mode stands. The service must
// not have failed in that mode. If disturbances hit the modes unequally, the
// first tries must give the same decision. about has the modes whose runs decide.
func (ev Evidence) Holds(about []Mode, favoured Mode, decide func(Evidence) bool) bool {
	if failed, _ := ev.Failures(favoured); failed > 0 {
		return false
	}
	return decide(ev) && (ev.selectionText(about) == "" || decide(ev.FirstTries()))
}

// withVoidRuns returns the claim with the verdict that the void runs allow. first
// has the same claims, judged by the first tries.
func (ev Evidence) withVoidRuns(c Claim, first []Claim) Claim {
	var notes []string
	contradicted := false // by a failure in a mode for which the verdict speaks
	for _, m := range c.About {
		if failed, _ := ev.Failures(m); failed > 0 {
			notes = append(notes, upper(ev.failureText(m))+".")
			contradicted = contradicted || c.Verdict != stat.NotMet && slices.Contains(c.Favours, m)
		}
	}
	verdict, shares := strings.ToUpper(string(c.Verdict)), ev.selectionText(c.About)
	switch {
	case c.Verdict == stat.Undecided || c.Verdict == stat.Refused:
	case contradicted:
		c.Verdict, c.Final = stat.Refused, ev.verdictsValid() // more blocks would not undo the failures
		notes = append(notes, fmt.Sprintf("The other runs alone would give %s.", verdict))
	case shares != "" && c.sameIn(first):
		notes = append(notes, upper(shares)+". The first run of each block, disturbed or not, gives the same verdict.")
	case shares != "":
		c.Verdict = stat.Refused
		notes = append(notes, fmt.Sprintf("%s. The runs that remain give %s, but the first run of each block, disturbed or not, does not: the verdict rests on the selection.", upper(shares), verdict))
	}
	c.Explanation = strings.Join(append(notes, c.Explanation), " ")
	return c
}

// sameIn reports whether a list has the claim with the same verdict.
func (c Claim) sameIn(list []Claim) bool {
	return slices.ContainsFunc(list, func(o Claim) bool {
		return o.Name == c.Name && o.Verdict == c.Verdict && slices.Equal(o.Favours, c.Favours)
	})
}

func upper(text string) string { return strings.ToUpper(text[:1]) + text[1:] }
