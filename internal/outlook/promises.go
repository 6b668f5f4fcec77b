package outlook

import (
	"fmt"
	"slices"
	"strings"

	"tenon.sh/tenon/internal/decide/promise"
	"tenon.sh/tenon/internal/decide/prospect"
	"tenon.sh/tenon/internal/lab/page"
	"tenon.sh/tenon/internal/model/unit"
)

// fitWords says whether promises came true as often as they said.
var fitWords = map[prospect.Fit]string{
	prospect.FitUnknown: "too few",
	prospect.FitAsSaid:  "as said",
	prospect.FitSeldom:  "less often",
	prospect.FitOften:   "more often",
}

// promisesSection has the promises for some hours, and how good such promises were.
func promisesSection(f prospect.Fleet) page.Section {
	s := page.Section{Title: "How much would have lasted, and how good were such forecasts"}
	s.Table.Heads = []page.Head{{Text: "for"}, {Text: "with"}, {Text: "CPUs"}, {Text: "came true"}, {Text: "verdict"}, {Text: "memory"}, {Text: "came true"}, {Text: "verdict"}}
	if !slices.ContainsFunc(f.CPU.Promised, says[unit.MilliCPU]) && !slices.ContainsFunc(f.Memory.Promised, says[unit.Bytes]) {
		return page.Section{}
	}
	var plain plainPromises
	var parts []string
	for i := range f.CPU.Promised {
		cpu := f.CPU.Promised[i]
		row := page.Row{Label: fmt.Sprintf("%d h", cpu.Hours), Cells: []string{cpu.Percent.String(), value(cpu, cores), came(cpu), verdict(cpu), "-", "-", "-"}}
		note(&plain, "CPU", cpu)
		parts = addPart(parts, "CPUs", cpu, f.Nodes)
		if i < len(f.Memory.Promised) {
			memory := f.Memory.Promised[i]
			copy(row.Cells[4:], []string{value(memory, size), came(memory), verdict(memory)})
			note(&plain, "memory", memory)
			parts = addPart(parts, "memory", memory, f.Nodes)
		}
		s.Table.Rows = append(s.Table.Rows, row)
	}
	s.Legend = "From the end of the data on, this much lasts for the hours with the probability; the other columns say what became of such forecasts, each made from the " +
		"data before it, with a 95% interval."
	if f.Nodes > 1 {
		s.Legend += " Each node keeps its own promise with this probability; the amounts are sums."
	}
	if len(parts) > 0 {
		s.Items = append(s.Items, "Not all nodes promise this, and the amounts lack the others: "+strings.Join(parts, ", ")+".")
	}
	if len(plain.kinds) > 0 {
		s.Items = append(s.Items, "No better than a fixed percentile of the past: "+plain.String()+". There the room has no pattern that helps, or too few days were seen to know.")
	}
	s.Items = append(s.Items, badDays(f.Days)...)
	if picture := promisesPicture(f); picture != "" {
		s.Plots = append(s.Plots, page.Plot{Title: "What was said, and what came (CPU)", Picture: picture})
	}
	if picture := daysPicture(f.Days); picture != "" {
		s.Plots = append(s.Plots, page.Plot{Title: fmt.Sprintf("Day by day: promises with %v", prospect.DayPercent), Picture: picture})
	}
	return s
}

// says reports whether something is known of a kind of promise.
func says[T amount](k prospect.Kept[T]) bool { return k.Code == promise.Known || k.Judged > 0 }

func value[T amount](k prospect.Kept[T], print func(T) string) string {
	switch k.Code {
	case promise.Known:
		return print(k.Value)
	case promise.TooFew:
		return "not yet"
	}
	return "unknown"
}

// addPart adds of how many nodes an amount is, if it is not of all. The probabilities of
// a length mostly have the same number.
func addPart[T amount](parts []string, resource string, k prospect.Kept[T], nodes int) []string {
	part := fmt.Sprintf("%s for %d h from %d of %d nodes", resource, k.Hours, k.Nodes, nodes)
	if k.Nodes == 0 || k.Nodes == nodes || slices.Contains(parts, part) {
		return parts
	}
	return append(parts, part)
}

func came[T amount](k prospect.Kept[T]) string {
	if k.Judged == 0 {
		return "-"
	}
	return fmt.Sprintf("%.0f%% (%d-%d)", 100*float64(k.Kept)/float64(k.Judged), k.Least/10, (k.Most+9)/10)
}

func verdict[T amount](k prospect.Kept[T]) string {
	if k.Judged == 0 {
		return "-"
	}
	return fitWords[k.Fit]
}

// plainPromises are those that are no better than a fixed percentile of the past: the
// probabilities by resource and length.
type plainPromises struct {
	kinds    []string
	percents map[string][]string
}

func note[T amount](p *plainPromises, resource string, k prospect.Kept[T]) {
	if !k.SkillPercent.Known() || k.Better {
		return
	}
	if p.percents == nil {
		p.percents = map[string][]string{}
	}
	kind := fmt.Sprintf("%s for %d h", resource, k.Hours)
	if p.percents[kind] == nil {
		p.kinds = append(p.kinds, kind)
	}
	p.percents[kind] = append(p.percents[kind], k.Percent.String())
}

func (p plainPromises) String() string {
	texts := make([]string, len(p.kinds))
	for i, kind := range p.kinds {
		texts[i] = fmt.Sprintf("%s (%s)", kind, strings.Join(p.percents[kind], ", "))
	}
	return strings.Join(texts, ", ")
}

// mostBadDays is the number of days that are named.
const mostBadDays = 5

// badDays names the days on which promises were kept less often than they said.
func badDays(all []prospect.Day) (items []string) {
	var named []string
	bad := 0
	for _, d := range all {
		if d.Fit() != prospect.FitSeldom {
			continue
		}
		if bad++; bad <= mostBadDays {
			named = append(named, fmt.Sprintf("on %s %d of %d for %d h", date(d.Day), d.Kept, d.Judged, d.Hours))
		}
	}
	if bad == 0 {
		return nil
	}
	text := fmt.Sprintf("Days unlike those before them, on which promises with %v were kept much less often than they said: %s", prospect.DayPercent, strings.Join(named, "; "))
	if bad > mostBadDays {
		text += fmt.Sprintf("; and %d more", bad-mostBadDays)
	}
	return []string{text + "."}
}
