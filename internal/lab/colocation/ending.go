package colocation

import (
	"fmt"
	"slices"

	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/lab/stat"
	"tenon.sh/tenon/internal/lab/textlayout"
)

// maxSentences is the maximum number of sentences at the end of a report. Each
// is one line on the terminal.
const maxSentences = 5

// A sentence answers one question, or says that the question is not decided.
type sentence struct {
	decided bool
	text    string
}

// ending returns at most maxSentences sentences that say what the experiment
// shows. Sentences about decided questions come first, and sentences about open
// questions follow. A reader can understand them without knowing the lab.
func ending(ev report.Evidence, r report.Result) []string {
	all := slices.Concat(usualSentences(ev, r), useSentence(ev, r), compareWithBestEffort(ev, r), compareWithAlone(ev), tailSentence(ev))
	slices.SortStableFunc(all, func(a, b sentence) int {
		switch {
		case a.decided == b.decided:
			return 0
		case a.decided:
			return -1
		}
		return 1
	})
	var texts []string
	for _, s := range all[:min(len(all), maxSentences)] {
		texts = append(texts, s.text)
	}
	return texts
}

// usualSentences compares batch work under Tenon with usual batch work: with
// CPU requests, or at nice 19.
func usualSentences(ev report.Evidence, r report.Result) []sentence {
	requests := compare(ev.Ratio(report.Burstable, report.Tenon, report.Waiting), requestsDiffer(ev), waits, "Batch work with requests")
	return append(requests, compareByVerdict(ev, r, report.Nice, report.WaitingTime, waits, "Batch work at nice 19")...)
}

// requestsDiffer reports whether the service waits longer, or less long, beside
// batch work with CPU requests than under Tenon. No claim says this: the claim
// about such batch work asks for a factor. The test is two-sided, like those of
// the claims that compare modes.
func requestsDiffer(ev report.Evidence) bool {
	longer := func(ev report.Evidence) bool {
		return ev.Ratio(report.Burstable, report.Tenon, report.Waiting).Value > 1
	}
	better, is := report.Burstable, longer(ev)
	if is {
		better = report.Tenon
	}
	return ev.Holds([]report.Mode{report.Burstable, report.Tenon}, better, func(ev report.Evidence) bool {
		logs, _ := stat.Logs(ev.Sample(report.Burstable, report.Waiting), ev.Sample(report.Tenon, report.Waiting))
		return longer(ev) == is && ev.Rule.P(logs, 1) <= ev.Rule.Spends()
	})
}

// useSentence returns a sentence about the CPU usage under Tenon.
func useSentence(ev report.Evidence, r report.Result) []sentence {
	e := stat.Mean(ev.Sample(report.Tenon, report.CPUPercent), ev.Rule)
	if e.Blocks == 0 {
		return nil
	}
	text := fmt.Sprintf("Tenon: the tested %s %.0f %% busy", isOrAre(ev), e.Value)
	if alone := stat.Mean(ev.Sample(report.Exclusive, report.CPUPercent), ev.Rule); alone.Blocks > 0 {
		text += fmt.Sprintf(", without batch work %.0f %%", alone.Value)
	}
	if verdictOf(r, string(report.Tenon)+"-cpu") == stat.Met {
		return []sentence{{true, text + "."}}
	}
	return []sentence{{false, fmt.Sprintf("%s (mean of %s).", text, blocks(e))}}
}

func isOrAre(ev report.Evidence) string {
	if ev.TestedCPUs.Len() > 1 {
		return "CPUs are"
	}
	return "CPU is"
}

func blocks(e stat.Estimate) string { return textlayout.Plural(e.Blocks, "block", "blocks") }

// A comparison holds the words before and after an amount such as "twice as
// long", and the question that the amount answers.
type comparison struct{ before, after, question string }

var (
	waits   = comparison{"the service waits ", " for its CPU", "does the service wait longer?"}
	answers = comparison{"90 of 100 answers take ", "", "do 90 of 100 answers take longer?"}
)

// compareWithBestEffort compares batch work in BestEffort pods of Kubernetes
// with batch work under Tenon.
func compareWithBestEffort(ev report.Evidence, r report.Result) []sentence {
	const where = "BestEffort pods"
	return append(compareByVerdict(ev, r, report.Default, report.WaitingTime, waits, where),
		compareByVerdict(ev, r, report.Default, report.P90, answers, where)...)
}

// compareByVerdict makes a sentence about a measure of the service beside usual
// batch work and under Tenon. The verdict of the claim decides, so that the
// sentence does not say more than the claim above it.
func compareByVerdict(ev report.Evidence, r report.Result, usual report.Mode, m report.Measure, words comparison, where string) []sentence {
	verdict := verdictOf(r, fmt.Sprintf("%s-or-%s-%s", usual, report.Tenon, m.Key))
	if verdict == stat.Tie {
		return []sentence{{true, fmt.Sprintf("%s: %sas long%s, within %s.", where, words.before, words.after, report.Limit(m.MarginOf(ev.Experiment)))}}
	}
	return compare(ev.Ratio(usual, report.Tenon, m.Of), verdict == stat.Differs, words, where)
}

func verdictOf(r report.Result, name string) stat.Verdict {
	for _, c := range r.Claims {
		if c.Name == name {
			return c.Verdict
		}
	}
	return stat.Undecided
}

// compare makes a sentence about one measure of the service. It compares the
// usual batch work (where) with batch work under Tenon.
func compare(e stat.Estimate, decided bool, words comparison, where string) []sentence {
	i := e
	amount := func(text string) []sentence {
		return []sentence{{true, fmt.Sprintf("%s: %s%s%s%s.", where, words.before, text, words.after, span(i))}}
	}
	switch {
	case e.Blocks == 0:
		return nil
	case !decided:
		return []sentence{{false, fmt.Sprintf("%s: %s %s.", where, words.question, cannotTell(e))}}
	case e.Value >= 2:
		return amount(factor(i.Value) + " times as long")
	case e.Value > 1:
		return amount(report.Scaled(i.Value-1, 100, 0) + " % longer")
	}
	return amount(report.Scaled(1-i.Value, 100, 0) + " % less long")
}

// cannotTell returns a text for a question that is not decided. With too few blocks
// for any verdict, the text has no interval, because an interval would mislead.
func cannotTell(e stat.Estimate) string {
	if !e.Enough {
		return blocks(e) + " cannot tell"
	}
	return blocks(e) + " cannot tell" + span(e)
}

// span prints an interval in brackets. It returns "" if there is no interval,
// or if the interval is too wide to be useful.
func span(i report.Interval) string {
	switch {
	case i.Blocks < 2 || i.IsVague():
		return ""
	case i.Low >= 2:
		return fmt.Sprintf(" (%s to %s)", factor(i.Low), factor(i.High))
	}
	return fmt.Sprintf(" (%s)", report.Span(i))
}

// factor prints a ratio with two digits.
func factor(n float64) string {
	if n < 10 {
		return report.FormatNumber(n, 1)
	}
	return report.FormatNumber(n, 0)
}

// compareWithAlone compares the service under Tenon with the service alone on
// its CPU. It prefers the mode in which a spinner keeps the CPU awake. A
// difference counts only if it is larger than the differences between two equal
// modes.
func compareWithAlone(ev report.Evidence) []sentence {
	alone, where := report.ExclusiveWarm, "alone on an awake CPU"
	if !ev.Asked(alone) {
		alone, where = report.Exclusive, "alone"
	}
	of := func(ev report.Evidence) (stat.Estimate, stat.Resolution) {
		return ev.Ratio(report.Tenon, alone, report.P90.Of), ev.Resolution(report.P90)
	}
	about := []report.Mode{report.Tenon, alone, report.Exclusive, report.ExclusiveAA}
	within := ev.Holds(about, report.Tenon, func(ev report.Evidence) bool {
		e, control := of(ev)
		return e.Enough && control.Fine && e.ClaimUpper < ev.Margin
	})
	longer := ev.Holds(about, alone, func(ev report.Evidence) bool {
		e, control := of(ev)
		return e.Enough && control.Control.Blocks > 1 && e.ClaimLower > max(control.Control.High, 1)
	})
	e, _ := of(ev)
	i := e
	switch {
	case e.Blocks == 0:
		return nil
	case within:
		return []sentence{{true, fmt.Sprintf("Tenon: %sat most %s longer than %s%s.", answers.before, report.Limit(ev.Margin), where, span(i))}}
	case longer:
		return []sentence{{true, fmt.Sprintf("Tenon: %s%s %% longer than %s%s.", answers.before, report.Scaled(i.Value-1, 100, 0), where, span(i))}}
	}
	return []sentence{{false, fmt.Sprintf("Tenon: do 90 of 100 answers take longer than %s? %s.", where, cannotTell(e))}}
}

// tailSentence returns a sentence about the differences in P99 that this machine shows
// between two equal modes. It prints the interval: half of its width is no bound, because
// the interval need not lie around equality.
func tailSentence(ev report.Evidence) []sentence {
	r := ev.Resolution(report.P99)
	switch {
	case r.Control.Blocks < 2 || r.Fine:
		return nil
	case r.Control.IsVague():
		return []sentence{{false, "The slowest answer of 100 (P99): are two equal modes alike? " + cannotTell(r.Control) + "."}}
	}
	return []sentence{{false, fmt.Sprintf("The slowest answer of 100 (P99): two equal modes differ by %s%s.", report.Change(r.Control.Value), span(r.Control))}}
}
