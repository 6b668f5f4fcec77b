// Package verdict says in words whether a service keeps its objective, why not, and
// what is done about it. The words are the same on the node and in the cluster.
package verdict

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/decide/slo"
	"tenon.sh/tenon/internal/decide/tick"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// A Page is what is known of the objective of one service.
type Page struct {
	Judgement slo.Judgement `json:"judgement"`
	// Lasted says for how long each verdict was in force.
	Lasted slo.Lasted `json:"lasted,omitzero"`
	// Unmeasured says why the node does not measure the waits of services. It is empty
	// unless that is the cause.
	Unmeasured string `json:"unmeasured,omitempty"`
	// Alone are the BE workloads that alone have less CPU for this service, by name.
	Alone []Alone `json:"alone,omitempty"`
	// All is the bound of all BE work of the node, because of this service or of others.
	All ClassBound `json:"all,omitzero"`
}

// Alone is a BE workload that alone may use no more than this.
type Alone struct {
	Workload node.WorkloadID `json:"workload"`
	May      unit.MilliCPU   `json:"may_mcpu"`
}

// A ClassBound bounds all BE work of a node. Files are the kernel files by which it
// does; "": nothing bounds BE work, or nothing does now. May is what the quotas leave
// to BE work; 0: there is no quota. Reason says why there is no bound, or not every
// kind of it.
type ClassBound struct {
	Files  string        `json:"files,omitempty"`
	May    unit.MilliCPU `json:"may_mcpu,omitempty"`
	Reason string        `json:"reason,omitempty"`
}

// Of returns the page of a service after a tick. It returns false if the service has
// no objective.
func Of(t tick.Tick, service node.WorkloadID) (Page, bool) {
	j, has := t.Objectives[service]
	if !has {
		return Page{}, false
	}
	p := Page{Judgement: j, Lasted: t.Lasted[service]}
	if j.Cause == slo.Unmeasured {
		p.Unmeasured = Unmeasured(t.Snapshot)
	}
	for id, b := range t.Single {
		if b.Victim == service {
			p.Alone = append(p.Alone, Alone{id, b.May})
		}
	}
	slices.SortFunc(p.Alone, func(a, b Alone) int { return strings.Compare(string(a.Workload), string(b.Workload)) })
	if t.BackOff > 0 {
		p.All = BoundOfClass(t)
	}
	return p, true
}

// BoundOfClass returns the bound of all BE work that CPU suppress wants.
func BoundOfClass(t tick.Tick) (b ClassBound) {
	var files []string
	for _, w := range t.Wants {
		if w.Owner != plan.OwnerSuppress {
			continue
		}
		if file := string(w.Knob.File); (w.Intent == plan.Set || w.Intent == plan.Pause) && !slices.Contains(files, file) {
			files = append(files, file)
		}
		if q, is := w.Value.(node.CPUMax); is && w.Intent == plan.Set && q.Quota != node.NoQuota {
			b.May += unit.MilliCPU(q.Cores() * 1000)
		}
		if w.Intent == plan.Abstain && b.Reason == "" {
			b.Reason = w.Reason
		}
	}
	if len(files) == 0 && b.Reason == "" {
		b.Reason = "there is no best-effort work"
	}
	b.Files = strings.Join(files, "; ")
	return b
}

// Unmeasured returns why the waits of services are not measured on a node.
func Unmeasured(s node.Snapshot) string {
	var why []string
	for _, f := range []node.Feature{node.FeatureBPF, node.FeatureSchedStat} {
		switch a := s.Capabilities[f]; {
		case a.Verdict != node.Yes:
			why = append(why, fmt.Sprintf("%s: %s", f, a.Why))
		case f == node.FeatureBPF:
			why = append(why, string(f)+": not counted (signals.runQueueDelay is off, or the program could not be loaded: see the log of tenond)")
		}
	}
	return strings.Join(why, "; ")
}

// Wants says in words what an objective is. It returns "" for none.
func Wants(o node.Objective) string {
	var parts []string
	if want, asks := o.RunQueueDelay.Value(); asks {
		parts = append(parts, fmt.Sprintf("99 of 100 waits of its threads for a CPU end within %v", want))
	}
	if targets := Targets(o.Requests); targets != "" {
		parts = append(parts, "requests are answered with "+targets)
	}
	return strings.Join(parts, ", and ")
}

// Suggests says in words which objective a service without one may state, and on what that
// rests.
func Suggests(s slo.Suggestion) string {
	quiet := fmt.Sprintf("windows of %v in which it hardly waited for best-effort work", slo.BaselineWindow)
	switch {
	case s.RunQueueDelay > 0:
		return fmt.Sprintf(`Suggested: {"runQueueDelay": "%v"}. In %d %s, 99 of 100 waits for a CPU ended within %s. The suggestion is three times that, rounded up.`,
			s.RunQueueDelay, s.Quiet, quiet, Short(s.Tail))
	case s.Quiet >= slo.EnoughQuiet:
		return fmt.Sprintf("None is suggested: in %d %s, it waited up to %s for a CPU (P99). No objective may be so long.", s.Quiet, quiet, Short(s.Tail))
	case s.Windows == 0:
		return fmt.Sprintf("None is suggested yet: it waits too rarely for a CPU, or for less than %v so far.", slo.BaselineWindow)
	}
	return fmt.Sprintf("None is suggested yet: in %d of %d windows, it hardly waited for best-effort work. %d such windows of %v are needed.", s.Quiet, s.Windows, slo.EnoughQuiet, slo.BaselineWindow)
}

// Targets says in words what an objective for requests is; "": there is none.
func Targets(o node.RequestObjective) string {
	var all []string
	for i, p := range node.Percentiles {
		if o.Within[i] > 0 {
			all = append(all, fmt.Sprintf("%s within %v", p.Name, o.Within[i]))
		}
	}
	if len(all) == 0 {
		return ""
	}
	return strings.Join(all, ", ") + " (source: " + string(o.Source) + ")"
}

// Objective returns the objective that was judged.
func (p Page) Objective() node.Objective {
	o := node.Objective{Requests: p.Judgement.Requests.Want}
	if want := p.Judgement.Objective; want > 0 {
		o.RunQueueDelay = node.Some(want)
	}
	return o
}

// Blame says in a few words why an objective is missed: the cause, and the workload
// that is most to blame. It returns "" for an objective that is kept.
func (p Page) Blame() string {
	text := string(p.Judgement.Cause)
	if culprit, percent := p.Judgement.Culprit(); culprit != "" {
		text += fmt.Sprintf(" (%s %d %%)", culprit, percent)
	}
	return text
}

// leastLasted is the shortest time that is divided among verdicts. The first window has
// none.
const leastLasted = time.Minute

// Text says in words whether the objective is kept, and if not, why not and what is
// done about it; and for which part of the time there was which verdict. on is the name
// of the node. at is the time of the page, on the clock of the judgement, and duration
// prints a time such as 40s.
func (p Page) Text(on string, at time.Time, duration func(time.Duration) string) string {
	text := p.presentText(on, at, duration)
	if total := p.Lasted.Total(); total >= leastLasted {
		text += fmt.Sprintf(" In the last %s: %s.", duration(total), Parts(p.Lasted))
	}
	return text
}

// Parts says for which part of the time each verdict was in force, such as "kept 98.4 %,
// missed 1.6 %". A part is rounded down. It returns "" if there was no time.
func Parts(l slo.Lasted) string {
	var parts []string
	for _, one := range []struct {
		verdict slo.Verdict
		lasted  time.Duration
	}{{slo.Kept, l.Kept}, {slo.Missed, l.Missed}, {slo.Undecided, l.Undecided}} {
		if one.lasted <= 0 {
			continue
		}
		share := "below 0.1"
		switch tenths := int64(1000 * one.lasted.Seconds() / l.Total().Seconds()); {
		case one.lasted == l.Total():
			share = "100"
		case tenths > 0:
			share = fmt.Sprintf("%d.%d", tenths/10, tenths%10)
		}
		parts = append(parts, fmt.Sprintf("%s %s %%", one.verdict, share))
	}
	return strings.Join(parts, ", ")
}

// presentText says what the present verdict is.
func (p Page) presentText(on string, at time.Time, duration func(time.Duration) string) string {
	s := p.Judgement
	lasts := lastsText(s.Since, at, duration)
	switch s.Verdict {
	case slo.Kept:
		text := fmt.Sprintf("It is kept%s%s.", lasts, after(": ", keptText(s)))
		if alone := p.boundAlone(); alone != "" {
			text += " " + alone + "."
		}
		return text
	case slo.Undecided:
		if s.Objective == 0 {
			return "Whether it is kept is not known: " + undecidedText(s.Requests) + "."
		}
		switch s.Cause {
		case slo.BelowLeast:
			return "It is not judged: it is shorter than leastRunQueueDelay in objective-config."
		case slo.Unmeasured:
			return fmt.Sprintf("Whether it is kept is not known: %s does not measure the waits%s.", on, after(": ", p.Unmeasured))
		}
		return "Whether it is kept is not known yet: there were too few waits for a verdict."
	}
	return p.missedText(on, lasts, lastsText(s.Requests.Since, at, duration)) + p.quietText()
}

// missedText says why an objective is missed, and what is done about it. lasts and
// requestsLast say for how long the verdicts last.
func (p Page) missedText(on, lasts, requestsLast string) string {
	s := p.Judgement
	text := fmt.Sprintf("It is missed%s: its threads wait up to %s (P99). ", lasts, measured(s))
	if s.Requests.Verdict == slo.Missed {
		text = fmt.Sprintf("It is missed%s: %s. ", requestsLast, answered(s.Requests))
	}
	alone := " Batch work is left alone."
	if s.Cause == slo.BEMemory || s.Cause == slo.Contention { // by memory or by cache, it may give way
		alone = " Batch work keeps its CPU."
	}
	if len(p.Alone) > 0 || p.All.Files != "" { // because of another service, or still for the last miss
		alone = " " + p.aloneText(on)
	}
	switch s.Cause {
	case slo.ForBE:
		return text + fmt.Sprintf("Best-effort work ran during %s%s. ", part(s, slo.ForBE), namesOf(s, slo.ForBE)) + p.aloneText(on)
	case slo.UnknownRunner:
		return text + "Which work ran meanwhile is not measured there, so best-effort work gives way. " + p.All.text(on)
	case slo.OwnLimit:
		return text + fmt.Sprintf("Its own CPU limit stopped it in %d of %d periods.", s.ThrottledPeriods, s.Periods) + alone
	case slo.OwnThreads:
		return text + fmt.Sprintf("Its own threads ran during %s: it has more threads to run than CPUs.", part(s, slo.OwnThreads)) + alone
	case slo.OtherService:
		return text + fmt.Sprintf("Other services ran during %s%s.", part(s, slo.OtherService), namesOf(s, slo.OtherService)) + alone
	case slo.System:
		return text + fmt.Sprintf("The system ran during %s%s.", part(s, slo.System), namesOf(s, slo.System)) + alone
	case slo.Host:
		return text + "Meanwhile the hypervisor ran something else on the CPUs of " + on + "." + alone
	case slo.BEMemory, slo.Memory, slo.Contention, slo.Storage, slo.Downstream, slo.NotWaiting:
		return text + spentText(s) + alone
	}
	return text + "For what they waited is not clear." + alone
}

// spentText says how the time of slow requests was spent, which hardly waited for a CPU.
func spentText(s slo.Judgement) string {
	spent := s.Requests.Spent
	switch s.Cause {
	case slo.BEMemory:
		by, _ := s.Culprit()
		who := "best-effort work"
		if by != "" {
			who = string(by) + ", which is best-effort work,"
		}
		return fmt.Sprintf("Its threads waited for memory%s, and %s took memory lately. Memory QoS and memory eviction act on memory.", during(spent.Memory, spent.Window), who)
	case slo.Memory:
		return fmt.Sprintf("Its threads waited for memory%s, because of its own limit or of other work than best-effort.", during(spent.Memory, spent.Window))
	case slo.Contention:
		return fmt.Sprintf("Its requests need more CPU time than with the same load before%s, and other work runs more: it shares caches, the bandwidth of memory or the siblings of CPUs.", needs(spent))
	case slo.Storage:
		return fmt.Sprintf("Its threads waited for a disk%s.", during(spent.IO, spent.Window))
	case slo.Downstream:
		return "Its threads slept: they neither ran for longer nor waited for a CPU, memory or a disk, but for a back end or for locks of their own."
	}
	waited := "Its threads hardly waited for a CPU"
	if s.Waited == 0 {
		waited = "Its threads did not wait for a CPU, or that is not measured here"
	}
	return waited + ": its own work took longer, or it waited for something else."
}

// during says for which part of a window something lasted; "": that is not known.
func during(t node.Maybe[time.Duration], window time.Duration) string {
	lasted, known := t.Value()
	if !known || window <= 0 {
		return ""
	}
	return fmt.Sprintf(" during %d %% of the time", min(100*lasted/window, 100))
}

// needs says how much CPU time a request needs, and before; "": that is not known.
func needs(s slo.Spent) string {
	work, known := s.Work.Value()
	usual, compared := s.UsualWork.Value()
	if !known || !compared {
		return ""
	}
	return fmt.Sprintf(" (%s, and %s before)", Short(work), Short(usual))
}

// quietText says that an objective is missed without batch work as well. It returns "" if
// it is not, or if its cause is the service itself or another one: without this cause, the
// node may keep the objective.
func (p Page) quietText() string {
	switch p.Judgement.Cause {
	case slo.OwnThreads, slo.OwnLimit, slo.OtherService:
		return ""
	}
	if r := p.Judgement.Requests; r.Verdict == slo.Missed && r.TooShort() {
		return fmt.Sprintf(" Without batch work, %s was at most %s at best: this objective is too short for the node.", percentile(r), Short(r.Quiet.Tail))
	}
	if !p.Judgement.TooShort() {
		return ""
	}
	return fmt.Sprintf(" Without batch work, 99 of 100 waits ended within %s at best: this objective is too short for the node.", Short(p.Judgement.Quiet.Tail))
}

// lastsText says for how long a verdict lasts, such as " for 40s". It returns "" if
// that is not known.
func lastsText(since, at time.Time, duration func(time.Duration) string) string {
	if since.IsZero() {
		return ""
	}
	return " for " + duration(max(at.Sub(since), 0))
}

// keptText says what was measured of a service that keeps its objective.
func keptText(s slo.Judgement) string {
	var parts []string
	if s.Tail > 0 || s.Objective > 0 && s.Requests.Verdict == "" {
		text := "99 of 100 waits ended within " + measured(s)
		if s.ByTolerance() {
			text += fmt.Sprintf(", and so few were longer than %s that they count as chance (%d more than 1 of 100, or less)", Short(s.Objective), slo.Tolerance)
		}
		parts = append(parts, text)
	}
	switch r := s.Requests; r.Verdict {
	case "":
	case slo.Kept:
		parts = append(parts, answered(r))
	default:
		parts = append(parts, "of its requests it is not known, because "+undecidedText(r))
	}
	return strings.Join(parts, ", and ")
}

// answered says how fast the requests of a window were answered.
func answered(r slo.RequestJudgement) string {
	of := ""
	if r.Total > 0 {
		of = fmt.Sprintf(" of %d requests", r.Total)
	}
	unsure := ""
	if r.Unknown > 0 {
		unsure = fmt.Sprintf("; the time of %d %% of all requests is not known", r.UnknownPercent())
	}
	tail, known := r.Tail.Value()
	if !known {
		return fmt.Sprintf("%s%s is above the longest bucket of the histogram%s", percentile(r), of, unsure)
	}
	return fmt.Sprintf("%s%s is at most %s%s", percentile(r), of, Short(tail), unsure)
}

// percentile returns the name of the percentile that decided a verdict. A report of a
// newer node may have one that this version does not know.
func percentile(r slo.RequestJudgement) string {
	if r.Target < 0 || r.Target >= len(node.Percentiles) {
		return "the percentile"
	}
	return node.Percentiles[r.Target].Name
}

// undecidedText says why there is no verdict about the requests of a service.
func undecidedText(r slo.RequestJudgement) string {
	switch r.Cause {
	case "":
		return "its node does not say why"
	case slo.TooFew:
		return "there were too few requests, or the first window has not ended"
	case slo.Overlapping:
		many := "too many"
		if r.Unknown > 0 {
			many = fmt.Sprintf("%d %%", r.UnknownPercent())
		}
		return many + " of its requests overlap on a connection, so that the sockets do not show how long each took"
	case slo.Straddled:
		return "too many requests are in the bucket of the histogram around " + percentile(r) + "; a bucket that ends at the target would decide"
	}
	if r.Trouble == node.TroubleOff && r.Want.Source == node.SourceSocket {
		return "its requests are not measured (the administrator has switched this off, by signals.requests of tenond)"
	}
	return "its requests cannot be read (" + troubleText(r.Trouble) + ")"
}

// troubles has words for the reasons why a source cannot be used.
var troubles = map[node.SourceTrouble]string{
	node.TroubleOff:          "the administrator has switched this off, by scrape in objective-config",
	node.TroubleTooStrict:    "the target is shorter than leastRequestLatency in objective-config",
	node.TroubleHostNetwork:  "the pod has the network of its node",
	node.TroubleNoAddress:    "the pod has no address",
	node.TroubleTooMany:      "too many services have such an objective",
	node.TroubleConnect:      "the connection fails",
	node.TroubleTLS:          "the server does not prove that it has its name",
	node.TroubleSlow:         "the answer takes longer than 2 s",
	node.TroubleRedirect:     "the answer is a redirection",
	node.TroubleStatus:       "the answer has another status than 200",
	node.TroubleContent:      "the answer does not have a format of Prometheus",
	node.TroubleTooLarge:     "the answer or the histogram is too large",
	node.TroubleAbsent:       "the answer does not have the histogram",
	node.TroubleDamaged:      "the numbers of the histogram contradict each other",
	node.TroubleReset:        "the histogram began again, or its buckets changed",
	node.TroubleStale:        "there was no new reading for some time",
	node.TroubleFuture:       "the reading is later than the clock of the node",
	node.TroublePartial:      "Prometheus says that its answer is not complete",
	node.TroubleNoPrometheus: "the administrator has named no Prometheus server, by --prometheus-url of tenon-manager",
	node.TroubleNoAnswer:     "tenon-manager has not answered yet",
	node.TroubleNoHook:       "the kernel of the node does not show when sockets send data",
	node.TroubleProbe:        "the kernel refuses the program that watches sockets: see the log of tenond",
}

func troubleText(code node.SourceTrouble) string {
	if text := troubles[code]; text != "" {
		return text
	}
	return string(code)
}

func measured(s slo.Judgement) string {
	text := Short(s.Tail)
	if s.Estimated {
		text += ", estimated from the mean"
	}
	return text
}

// part returns the share of the waits that runners of one kind caused.
func part(s slo.Judgement, kind slo.Cause) string {
	var sum time.Duration
	for _, r := range s.Runners {
		if r.Cause == kind {
			sum += r.Time
		}
	}
	return share(s, sum) + " of the waiting time"
}

func share(s slo.Judgement, t time.Duration) string {
	if s.Waited <= 0 {
		return Short(t)
	}
	return fmt.Sprintf("%d %%", min(100*t/s.Waited, 100))
}

// namesOf lists the runners of one kind, each with its share.
func namesOf(s slo.Judgement, kind slo.Cause) string {
	var names []string
	for _, r := range s.Runners {
		if r.Cause == kind {
			names = append(names, string(r.ID)+" "+share(s, r.Time))
		}
	}
	return after(": ", strings.Join(names, ", "))
}

// aloneText says which batch work is bounded for a service: single workloads, or all
// of it.
func (p Page) aloneText(on string) string {
	alone := p.boundAlone()
	switch {
	case alone == "":
		return p.All.text(on)
	case p.All.Files == "":
		return alone + ". All other best-effort work keeps its CPU."
	}
	return alone + ". " + p.All.text(on)
}

// boundAlone names the workloads that are bounded alone for a service. It returns ""
// if there are none.
func (p Page) boundAlone() string {
	var names []string
	for _, b := range p.Alone {
		names = append(names, fmt.Sprintf("%s alone gives way: it has at most %.2f CPUs", b.Workload, float64(b.May)/1000))
	}
	return strings.Join(names, ", and ")
}

// text says what bounds the best-effort work of a node.
func (b ClassBound) text(on string) string {
	why := after(" (", b.Reason)
	if why != "" {
		why += ")"
	}
	switch {
	case b.May > 0:
		return fmt.Sprintf("All best-effort work of %s has at most %.2f CPUs by %s%s now.", on, float64(b.May)/1000, b.Files, why)
	case b.Files != "":
		return fmt.Sprintf("%s bounds the best-effort work of %s now%s.", b.Files, on, why)
	}
	return fmt.Sprintf("Nothing bounds the best-effort work of %s now%s.", on, why)
}

// Short prints a time rounded, so that it is easy to read.
func Short(t time.Duration) string {
	switch {
	case t >= 100*time.Millisecond:
		return t.Round(time.Millisecond).String()
	case t >= time.Millisecond:
		return t.Round(100 * time.Microsecond).String()
	}
	return t.Round(time.Microsecond).String()
}

// after puts a prefix before a text. It returns "" for an empty text.
func after(prefix, text string) string {
	if text == "" {
		return ""
	}
	return prefix + text
}
