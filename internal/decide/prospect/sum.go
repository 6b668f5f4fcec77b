package prospect

import (
	"cmp"
	"slices"
	"strings"

	"tenon.sh/tenon/internal/decide/promise"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// A Fleet is the sum of the outlooks of nodes. It is what a page shows.
type Fleet struct {
	Nodes int   `json:"nodes"`
	From  int64 `json:"from_minute"` // as in Outlook, of all nodes
	To    int64 `json:"to_minute"`
	Seen  int64 `json:"seen_minutes"` // of the node that was seen for the median time

	CPU    Supply[unit.MilliCPU] `json:"cpu_mcpu"`
	Memory Supply[unit.Bytes]    `json:"memory_bytes"`
	Risks  []Risk                `json:"risks"`
	// Hurt are the services that lost most, over all nodes.
	Hurt []HurtOn `json:"hurt,omitempty"`
	// Lasting are the sums over the nodes that the sums of CPU count. A length that was not
	// promised on each of them is left out, and an hour at which it was not is absent.
	Lasting []Lasting `json:"lasting,omitempty"`
	// Days has the promises of all nodes, by day and length.
	Days []Day `json:"days,omitempty"`
	// Week sets working days beside weekends, for the nodes that the sums of CPU count.
	Week   FleetWeek `json:"week"`
	Saving Saving    `json:"saving"`
	Gaps   []Gap     `json:"gaps,omitempty"`
}

// A Supply is what nodes together could have given of a resource.
type Supply[T unit.MilliCPU | unit.Bytes] struct {
	// Nodes is the number of nodes of which the sums are, and Capacity what these have.
	// If one node was measured at each hour of the day, no node counts that was not.
	Nodes    int `json:"nodes"`
	Capacity T   `json:"capacity"`
	// The low values are sums of the low values of the nodes. The low value of the sum is
	// higher: the nodes do not have little room at the same time.
	All   Spread[T]     `json:"all"`
	Hours [24]Spread[T] `json:"hours"` // without steps: not each of the nodes was measured at this hour
	// Promised has an entry for each of promise.Hours and promise.Levels, of all nodes.
	Promised []Kept[T] `json:"promised,omitempty"`
}

// HurtOn is a service that was hurt on some nodes.
type HurtOn struct {
	Hurt
	Nodes int `json:"nodes"`
}

// Kept says what nodes promise of a resource for some hours with a probability, and how
// often they kept such promises.
type Kept[T unit.MilliCPU | unit.Bytes] struct {
	Hours   int          `json:"hours"`
	Percent unit.Percent `json:"percent"`
	// Amount has the sums over the nodes, and the median of their skills. Code is that of
	// one node, and Known if one of them is. Each node keeps its own promise with the
	// probability. Better means that most nodes are better.
	promise.Amount[T]
	Nodes int `json:"nodes"` // whose Code is Known
	// Least and Most are the 95 % interval of the share of kept promises, in thousandths.
	// Promises overlap, so only each Hours-th counts; nodes count as independent.
	Least int64 `json:"least_permille"`
	Most  int64 `json:"most_permille"`
	Fit   Fit   `json:"fit"`
}

// Fit says whether promises came true as often as they said.
type Fit string

// The values of Fit.
const (
	FitUnknown Fit = "too-few-judged" // the interval is wider than a verdict needs
	FitAsSaid  Fit = "as-said"
	FitSeldom  Fit = "less-often" // the interval lies below the probability
	FitOften   Fit = "more-often" // and above it
)

// A GapCode is a reason why a page knows less than it could.
type GapCode string

// The codes. Nodes is the number of nodes for which it is so.
const (
	GapRoomCPU    GapCode = "no-cpu-room"        // the room of CPU was not measured
	GapRoomMemory GapCode = "no-memory-room"     // nor that of memory
	GapNoForecast GapCode = "under-three-days"   // too few days for a promise, and there is none
	GapNoWeek     GapCode = "under-seven-days"   // no weekend, or no whole week, was seen
	GapHoles      GapCode = "holes"              // more than a tenth of the time was not seen
	GapNotInSum   GapCode = "hours-missing"      // the node is in no sum
	GapBatch      GapCode = "batch-work-unknown" // which work could be batch work is not known
)

// A Gap is something that is not known of some nodes.
type Gap struct {
	Code  GapCode `json:"code"`
	Nodes int     `json:"nodes"`
}

const (
	forecastDays = 3
	weekDays     = 7
	// mostOfFleet is the number of hurt services of a fleet, of each of the two kinds.
	mostOfFleet = 10
)

// Sum adds up the outlooks of nodes.
func Sum(all []Outlook) Fleet {
	f := Fleet{Nodes: len(all)}
	if len(all) == 0 {
		return f
	}
	seen := make([]int64, len(all))
	for i, o := range all {
		if seen[i] = o.Seen; o.Seen == 0 {
			continue
		}
		if f.To == 0 {
			f.From = o.From
		}
		f.From, f.To = min(f.From, o.From), max(f.To, o.To)
	}
	slices.Sort(seen)
	f.Seen = seen[len(seen)/2]
	f.CPU = supplyOf(all, func(o *Outlook) unit.MilliCPU { return o.CPU }, func(h *Hour) Spread[unit.MilliCPU] { return h.CPU })
	f.Memory = supplyOf(all, func(o *Outlook) unit.Bytes { return o.Memory }, func(h *Hour) Spread[unit.Bytes] { return h.Memory })
	f.Risks = risksOf(all)
	f.Hurt = hurtOf(all)
	f.CPU.Promised = promisedOf(all, func(p *promise.Promise) *promise.Amount[unit.MilliCPU] { return &p.CPU })
	f.Memory.Promised = promisedOf(all, func(p *promise.Promise) *promise.Amount[unit.Bytes] { return &p.Memory })
	whole := measured(all, func(h *Hour) Spread[unit.MilliCPU] { return h.CPU })
	f.Days, f.Lasting, f.Week = daysOf(all), lastingOf(whole), weekOf(whole)
	f.Saving = savingOf(all)
	f.Gaps = gapsOf(all, f.CPU.Nodes)
	return f
}

// measured returns the nodes that were measured at each hour of the day, or, if there are
// none, those that were measured at some.
func measured[T unit.MilliCPU | unit.Bytes](all []Outlook, of func(*Hour) Spread[T]) []*Outlook {
	var whole, some []*Outlook
	for i := range all {
		o := &all[i]
		hours := 0
		for h := range o.Hours {
			if of(&o.Hours[h]).Steps > 0 {
				hours++
			}
		}
		if hours == len(o.Hours) {
			whole = append(whole, o)
		}
		if hours > 0 {
			some = append(some, o)
		}
	}
	if len(whole) == 0 {
		return some
	}
	return whole
}

// supplyOf adds up what nodes could give of a resource.
func supplyOf[T unit.MilliCPU | unit.Bytes](all []Outlook, capacity func(*Outlook) T, of func(*Hour) Spread[T]) (s Supply[T]) {
	whole := measured(all, of)
	s.Nodes = len(whole)
	alls := make([]Spread[T], len(whole))
	for i, o := range whole {
		s.Capacity += capacity(o)
		alls[i] = of(&o.All)
	}
	s.All = added(alls)
	for h := range s.Hours {
		for i, o := range whole {
			alls[i] = of(&o.Hours[h])
		}
		s.Hours[h] = added(alls)
	}
	return s
}

// added adds up spreads. If one of them was not measured, the sum was not.
func added[T unit.MilliCPU | unit.Bytes](all []Spread[T]) (sum Spread[T]) {
	used, usedByAll := T(0), len(all) > 0
	for _, s := range all {
		if s.Steps == 0 {
			return Spread[T]{}
		}
		sum.Steps, sum.Low, sum.Mean = sum.Steps+s.Steps, sum.Low+s.Low, sum.Mean+s.Mean
		v, known := s.Used.Value()
		used, usedByAll = used+v, usedByAll && known
	}
	if usedByAll {
		sum.Used = node.Some(used)
	}
	return sum
}

// add adds trials of another node. Nodes count as independent.
func (t Trials) add(o Trials) Trials {
	return Trials{t.Jobs + o.Jobs, t.Failed + o.Failed, t.Variance + o.Variance, t.Free + o.Free}
}

func risksOf(all []Outlook) []Risk {
	sums := make([]Risk, 0, len(Lengths)*len(Fills))
	for _, length := range Lengths {
		for _, fill := range Fills {
			sum := Risk{Length: length, Fill: fill}
			for i := range all {
				for _, r := range all[i].Risks {
					if r.Length == length && r.Fill == fill {
						sum.CPU, sum.Memory = sum.CPU.add(r.CPU), sum.Memory.add(r.Memory)
					}
				}
			}
			sums = append(sums, sum)
		}
	}
	return sums
}

func (h Hurt) compare(o Hurt) int {
	return cmp.Or(cmp.Compare(o.Lost, h.Lost), strings.Compare(h.Service, o.Service), strings.Compare(h.By, o.By))
}

// hurtOf adds up what services lost on all nodes, the worst first.
func hurtOf(all []Outlook) []HurtOn {
	sums := map[[2]string]*HurtOn{}
	for i := range all {
		for _, h := range all[i].Hurt {
			key := [2]string{h.Service, h.By}
			if sums[key] == nil {
				sums[key] = &HurtOn{Hurt: Hurt{Service: h.Service, By: h.By}}
			}
			sum := sums[key]
			sum.Nodes, sum.Minutes, sum.Lost = sum.Nodes+1, sum.Minutes+h.Minutes, sum.Lost+h.Lost
		}
	}
	out := make([]HurtOn, 0, len(sums))
	for _, h := range sums {
		out = append(out, *h)
	}
	slices.SortFunc(out, func(a, b HurtOn) int { return a.compare(b.Hurt) })
	var counts [2]int
	return slices.DeleteFunc(out, func(h HurtOn) bool {
		kind := 0
		if h.By == "" {
			kind = 1
		}
		counts[kind]++
		return counts[kind] > mostOfFleet
	})
}

func promisedOf[T unit.MilliCPU | unit.Bytes](all []Outlook, of func(*promise.Promise) *promise.Amount[T]) (out []Kept[T]) {
	for _, hours := range promise.Hours {
		for _, percent := range promise.Levels {
			var amounts []promise.Amount[T]
			for i := range all {
				for j := range all[i].Promises {
					if p := &all[i].Promises[j]; p.Hours == hours && p.Percent == percent {
						amounts = append(amounts, *of(p))
					}
				}
			}
			if len(amounts) > 0 {
				out = append(out, keptOf(hours, percent, amounts))
			}
		}
	}
	return out
}

// keptOf adds up the promises of nodes for some hours with a probability.
func keptOf[T unit.MilliCPU | unit.Bytes](hours int, percent unit.Percent, all []promise.Amount[T]) Kept[T] {
	sum := promise.Amount[T]{Code: all[0].Code, Windows: all[0].Windows, Needed: all[0].Needed}
	k := Kept[T]{Hours: hours, Percent: percent}
	var skills []unit.Percent
	better := 0
	for _, a := range all {
		if a.Code == promise.Known {
			k.Nodes++
			sum.Code, sum.Value = promise.Known, sum.Value+a.Value
		}
		sum.Judged, sum.Kept = sum.Judged+a.Judged, sum.Kept+a.Kept
		sum.Windows = min(sum.Windows, a.Windows)
		if skill, known := a.SkillPercent.Value(); known {
			skills = append(skills, skill)
			if a.Better {
				better++
			}
		}
	}
	if len(skills) > 0 {
		slices.Sort(skills)
		sum.SkillPercent = node.Some(skills[len(skills)/2])
		sum.Better = 2*better > len(skills)
	}
	k.Amount = sum
	const oneInTwenty = 1.96
	k.Least, k.Most = interval(sum.Kept, sum.Judged, float64(sum.Judged)/float64(hours), oneInTwenty)
	k.Fit = fitOf(k.Least, k.Most, percent)
	return k
}

// lastingOf adds up what nodes promised at each hour of the day.
func lastingOf(all []*Outlook) (sums []Lasting) {
	for _, hours := range promise.Hours {
		var of []*Lasting
		for _, o := range all {
			if i := slices.IndexFunc(o.Lasting, func(l Lasting) bool { return l.Hours == hours }); i >= 0 {
				of = append(of, &o.Lasting[i])
			}
		}
		if len(of) == 0 || len(of) < len(all) {
			continue
		}
		sum := *of[0]
		for _, l := range of[1:] {
			for h := range sum.CPU {
				sum.CPU[h], sum.Memory[h] = both(sum.CPU[h], l.CPU[h]), both(sum.Memory[h], l.Memory[h])
			}
		}
		sums = append(sums, sum)
	}
	return sums
}

// both returns the sum of two amounts, if both are known.
func both[T unit.MilliCPU | unit.Bytes](a, b node.Maybe[T]) node.Maybe[T] {
	x, known := a.Value()
	if y, has := b.Value(); known && has {
		return node.Some(x + y)
	}
	return node.Maybe[T]{}
}

// daysOf adds up the days of all nodes.
func daysOf(all []Outlook) (days []Day) {
	type of struct {
		day   int64
		hours int
	}
	sums := map[of]*Day{}
	for i := range all {
		for _, d := range all[i].Days {
			sum := sums[of{d.Day, d.Hours}]
			if sum == nil {
				sum = &Day{Day: d.Day, Hours: d.Hours}
				sums[of{d.Day, d.Hours}] = sum
			}
			sum.Judged, sum.Kept = sum.Judged+d.Judged, sum.Kept+d.Kept
		}
	}
	for _, d := range sums {
		days = append(days, *d)
	}
	slices.SortFunc(days, func(a, b Day) int { return cmp.Or(cmp.Compare(a.Day, b.Day), cmp.Compare(a.Hours, b.Hours)) })
	return days
}

// widest is the width of the interval, in thousandths, from which on there is no verdict
// that the promises came true as often as they said.
const widest = 200

func fitOf(least, most int64, percent unit.Percent) Fit {
	said := int64(percent) * 10
	switch {
	case most < said:
		return FitSeldom
	case least > said:
		return FitOften
	case most-least > widest:
		return FitUnknown
	}
	return FitAsSaid
}

// promises reports whether something is promised of a node.
func (o *Outlook) promises() bool {
	return slices.ContainsFunc(o.Promises, func(p promise.Promise) bool { return p.CPU.Code == promise.Known || p.Memory.Code == promise.Known })
}

// gapsOf counts what is not known. summed is the number of nodes in the sums of CPU.
func gapsOf(all []Outlook, summed int) []Gap {
	counts := map[GapCode]int{}
	measured := 0
	for i := range all {
		o := &all[i]
		span := o.To - o.From
		noForecast := o.Seen < forecastDays*minutesOfDay && !o.promises()
		for _, gap := range []struct {
			code GapCode
			is   bool
		}{
			{GapRoomCPU, o.All.CPU.Steps == 0},
			{GapRoomMemory, o.All.Memory.Steps == 0},
			{GapNoForecast, noForecast},
			{GapNoWeek, !noForecast && span < weekDays*minutesOfDay},
			{GapHoles, (span-o.Seen)*10 > span},
			{GapBatch, !o.BatchCPU.Known()},
		} {
			if gap.is {
				counts[gap.code]++
			}
		}
		if o.All.CPU.Steps > 0 {
			measured++
		}
	}
	counts[GapNotInSum] = measured - summed
	var gaps []Gap
	for _, code := range []GapCode{GapRoomCPU, GapRoomMemory, GapNoForecast, GapNoWeek, GapHoles, GapNotInSum, GapBatch} {
		if counts[code] > 0 {
			gaps = append(gaps, Gap{code, counts[code]})
		}
	}
	return gaps
}
