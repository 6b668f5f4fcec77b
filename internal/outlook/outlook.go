// Package outlook is the page that says how much nodes could have given to batch work:
// the values of package prospect as words, tables and pictures, for a terminal and as one
// file of HTML.
package outlook

import (
	"fmt"
	"strings"
	"time"

	"tenon.sh/tenon/internal/decide/prospect"
	"tenon.sh/tenon/internal/lab/page"
	"tenon.sh/tenon/internal/model/node"
)

// A View is what a page shows.
type View struct {
	Of    string // names the nodes, as the subject of a sentence: "Node web-1", "The 40 nodes of pool a"
	Fleet prospect.Fleet
	// Price is what a node costs an hour, in a currency of the reader.
	Price node.Maybe[float64]
	// Jobs is what Jobs of the cluster requested. It is absent if it was not asked for, and
	// if it could not be read, for which JobsUnread has the reason. It is shown where it is
	// not known which work could be batch work (prospect.BatchUnknown).
	Jobs       node.Maybe[prospect.Jobs]
	JobsUnread string
	// Hints say what the reader can do about a gap.
	Hints map[prospect.GapCode]string
	// Notes are sentences about what the source of the values does not tell.
	Notes []string
}

// Page returns the page. Times are UTC.
func (v View) Page() page.Page {
	f := v.Fleet
	p := page.Page{
		Title: "How much could batch work have?",
		Lead:  []string{v.seen()},
		Meta:  "Counted by Tenon from what was measured. Hours are UTC.",
	}
	if f.CPU.Nodes > 0 {
		p.Lead = append(p.Lead, v.answer())
		if w := f.Week; w.Differ {
			p.Lead = append(p.Lead, weekLead(w, f.CPU.Nodes))
		}
	}
	for _, s := range []page.Section{
		supplySection(f), hoursSection(f), risksSection(f.Risks), promisesSection(f), hurtSection(f), v.workSection(), v.gapsSection(),
	} {
		if s.Title != "" {
			p.Sections = append(p.Sections, s)
		}
	}
	p.Caveats = []string{
		"Batch work is taken to use all that it requests, and to get no more than the room. Real jobs mostly use less.",
		"How services would have reacted is not known: what batch work costs them in caches and memory bandwidth shows only when it runs.",
	}
	return p
}

// seen says what the page rests on.
func (v View) seen() string {
	f := v.Fleet
	has, verb := "has", "was"
	if f.Nodes > 1 {
		has, verb = "have", "were"
	}
	if f.Seen == 0 {
		return v.Of + " " + has + " no measured minute."
	}
	text := fmt.Sprintf("%s %s observed for %s, from %s to %s UTC", v.Of, verb, days(f.Seen), minute(f.From), minute(f.To))
	if f.Nodes > 1 {
		text += " (the median of the nodes)"
	}
	return text + "."
}

// answer is the sentence for a reader who reads nothing else.
func (v View) answer() string {
	cpu := v.Fleet.CPU
	text := fmt.Sprintf("Batch work could have had %s of %s CPUs on average, and %s in 95%% of the time",
		cores(cpu.All.Mean), cores(cpu.Capacity), cores(cpu.All.Low))
	if memory := v.Fleet.Memory; memory.Nodes > 0 {
		text += fmt.Sprintf(", with %s of memory on average, and %s in 95%% of the time", size(memory.All.Mean), size(memory.All.Low))
	}
	return text + "."
}

// supplySection has the room by resource.
func supplySection(f prospect.Fleet) page.Section {
	if f.CPU.Nodes == 0 && f.Memory.Nodes == 0 {
		return page.Section{}
	}
	s := page.Section{Title: "What could be offered to batch work"}
	most, least, known := extremes(f)
	s.Table.Heads = []page.Head{{Text: ""}, {Text: "of"}, {Text: "used"}, {Text: "95% of the time"}, {Text: "mean"}}
	if known {
		s.Table.Heads = append(s.Table.Heads, page.Head{Text: "mean at " + hour(most)}, page.Head{Text: "mean at " + hour(least)})
	}
	if c := f.CPU; c.Nodes > 0 {
		row := page.Row{Label: "CPUs", Cells: []string{cores(c.Capacity), maybe(c.All.Used, cores), cores(c.All.Low), cores(c.All.Mean)}}
		if known {
			row.Cells = append(row.Cells, cores(c.Hours[most].Mean), cores(c.Hours[least].Mean))
		}
		s.Table.Rows = append(s.Table.Rows, row)
	}
	if m := f.Memory; m.Nodes > 0 {
		row := page.Row{Label: "memory", Cells: []string{size(m.Capacity), maybe(m.All.Used, size), size(m.All.Low), size(m.All.Mean)}}
		if known {
			row.Cells = append(row.Cells, inHour(m.Hours[most], m.Hours[most].Mean, size), inHour(m.Hours[least], m.Hours[least].Mean, size))
		}
		s.Table.Rows = append(s.Table.Rows, row)
	}
	if f.Nodes > 1 {
		s.Legend = "Each node's own values, added up. All nodes together have more than the sum in 95% of the time, because they do not have little room at the same time."
	}
	return s
}

// extremes returns the hours with the most and the least mean room of CPU.
func extremes(f prospect.Fleet) (most, least int, known bool) {
	for h, s := range f.CPU.Hours {
		if s.Steps == 0 {
			continue
		}
		if !known {
			most, least, known = h, h, true
		}
		if s.Mean > f.CPU.Hours[most].Mean {
			most = h
		}
		if s.Mean < f.CPU.Hours[least].Mean {
			least = h
		}
	}
	return most, least, known && most != least
}

// inHour prints a value of an hour, or a dash if it was not measured.
func inHour[T amount](s prospect.Spread[T], v T, print func(T) string) string {
	if s.Steps == 0 {
		return "-"
	}
	return print(v)
}

// everyHours is the distance of the hours that a terminal shows.
const everyHours = 3

// hoursSection has the room by the hour of the day: a table for a terminal, and pictures.
func hoursSection(f prospect.Fleet) page.Section {
	if f.CPU.Nodes == 0 && f.Memory.Nodes == 0 {
		return page.Section{}
	}
	s := page.Section{Title: "By hour of the day", Table: page.Table{Heads: []page.Head{{Text: "begins (UTC)"}}}}
	rows := []page.Row{{Label: "memory, 95% of the time"}, {Label: "memory, mean"}}
	parts := cpuParts(f)
	for _, p := range parts {
		rows = append(rows, page.Row{Label: p.low})
	}
	for _, p := range parts {
		rows = append(rows, page.Row{Label: p.mean})
	}
	for h := 0; h < len(f.CPU.Hours); h += everyHours {
		s.Table.Heads = append(s.Table.Heads, page.Head{Text: hour(h)})
		memory := f.Memory.Hours[h]
		texts := []string{inHour(memory, memory.Low, size), inHour(memory, memory.Mean, size)}
		for _, p := range parts {
			texts = append(texts, inHour(p.supply.Hours[h], p.supply.Hours[h].Low, cores))
		}
		for _, p := range parts {
			texts = append(texts, inHour(p.supply.Hours[h], p.supply.Hours[h].Mean, cores))
		}
		for i, text := range texts {
			rows[i].Cells = append(rows[i].Cells, text)
		}
	}
	// Memory changes little over a day; what lasts of it stands with the promises.
	for _, l := range f.Lasting {
		r := page.Row{Label: fmt.Sprintf("CPUs for %d h with %v", l.Hours, prospect.DayPercent)}
		for h := 0; h < len(l.CPU); h += everyHours {
			r.Cells = append(r.Cells, maybe(l.CPU[h], cores))
		}
		rows = append(rows, r)
	}
	if len(f.Lasting) > 0 {
		s.Legend = fmt.Sprintf("With %v: the mean of what was promised at this hour for the next hours.", prospect.DayPercent)
	}
	for _, r := range rows {
		if strings.Trim(strings.Join(r.Cells, ""), "-") != "" {
			s.Table.Rows = append(s.Table.Rows, r)
		}
	}
	if f.Week.Differ {
		s.Items = append(s.Items, weekNote(f))
	}
	if f.CPU.Nodes > 0 {
		for _, p := range parts {
			s.Plots = append(s.Plots, page.Plot{Title: p.title, Picture: hoursPicture(p.supply, "CPUs", 1000, cores)})
		}
	}
	if f.Memory.Nodes > 0 {
		unit, scale := "GiB", 1<<30
		if f.Memory.Capacity >= 4<<40 {
			unit, scale = "TiB", 1<<40
		}
		s.Plots = append(s.Plots, page.Plot{Title: "Memory", Picture: hoursPicture(f.Memory, unit, float64(scale), size)})
	}
	if len(s.Plots) > 0 {
		s.Key = hoursKey
	}
	return s
}

// risksSection says how many jobs would have failed.
func risksSection(risks []prospect.Risk) page.Section {
	fills := map[time.Duration][]prospect.Risk{}
	for _, r := range risks {
		if r.CPU.Jobs > 0 || r.Memory.Jobs > 0 {
			fills[r.Length] = append(fills[r.Length], r)
		}
	}
	if len(fills) == 0 {
		return page.Section{}
	}
	s := page.Section{
		Title: "With which risk for a job",
		Text:  "Of the jobs that would have begun at each moment, if batch work had used a part of what it could request then:",
		Legend: "Short of CPU: less than half of what it requested, for more than a tenth of its time. Short of memory: at some moment batch work had more " +
			"than the room and what an eviction leaves it beyond. Counted over all beginnings, without a model; in brackets, the 90% interval in which other " +
			"weeks of this kind lie, from how much days differ.",
	}
	s.Table.Heads = []page.Head{{Text: "job"}, {Text: "short of"}}
	for _, fill := range prospect.Fills {
		s.Table.Heads = append(s.Table.Heads, page.Head{Text: "filled to " + fill.String()})
	}
	for _, length := range prospect.Lengths {
		of := fills[length]
		if len(of) == 0 {
			continue
		}
		cpu, memory := page.Row{Label: span(length), Cells: []string{"CPU"}}, page.Row{Label: span(length), Cells: []string{"memory"}}
		for _, r := range of {
			cpu.Cells, memory.Cells = append(cpu.Cells, risk(r.CPU)), append(memory.Cells, risk(r.Memory))
		}
		s.Table.Rows = append(s.Table.Rows, cpu, memory)
	}
	s.Plots = []page.Plot{{Picture: risksPicture(risks)}}
	return s
}

// gapWords says what a gap means, after the number of nodes.
var gapWords = map[prospect.GapCode]string{
	prospect.GapRoomCPU:    "the room of CPU was not measured",
	prospect.GapRoomMemory: "the room of memory was not measured",
	prospect.GapNoForecast: "fewer than 3 days were seen, so nothing is promised",
	prospect.GapNoWeek:     "fewer than 7 days were seen, so a weekend may be missing",
	prospect.GapHoles:      "more than a tenth of the time was not seen",
	prospect.GapNotInSum:   "not each hour of the day was seen, so the node is in no sum",
	prospect.GapBatch:      "it is not known which work could be batch work",
}

// gapsSection says what is not known.
func (v View) gapsSection() page.Section {
	f, s := v.Fleet, page.Section{Title: "What is not known"}
	for _, g := range f.Gaps {
		if g.Code == prospect.GapBatch && v.Jobs.Known() {
			continue // the section of Jobs says what is not known of them
		}
		text := gapWords[g.Code]
		if f.Nodes > 1 {
			text = fmt.Sprintf("%d of %d nodes: %s", g.Nodes, f.Nodes, text)
		}
		text = strings.ToUpper(text[:1]) + text[1:] + "."
		if hint := v.Hints[g.Code]; hint != "" {
			text += " " + hint
		}
		s.Items = append(s.Items, text)
	}
	if s.Items = append(s.Items, v.Notes...); len(s.Items) == 0 {
		return page.Section{}
	}
	return s
}
