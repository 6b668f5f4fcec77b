package outlook

import (
	"fmt"

	"tenon.sh/tenon/internal/decide/prospect"
	"tenon.sh/tenon/internal/lab/page"
	"tenon.sh/tenon/internal/lab/textlayout"
	"tenon.sh/tenon/internal/table"
)

// limit stands in place of a neighbour for a service that its own limit holds back.
const limit = "(its own CPU limit)"

var hurtColumns = []table.Column[prospect.HurtOn]{
	{Name: "service", Text: func(h prospect.HurtOn) string { return short(h.Service) }},
	{Name: "waits for", Text: func(h prospect.HurtOn) string {
		if h.By == "" {
			return limit
		}
		return short(h.By)
	}},
	{Name: "lost", Text: func(h prospect.HurtOn) string {
		if h.Lost == 0 { // a service that is hurt lost some: it was not measured
			return "-"
		}
		return lost(h.Lost)
	}},
	{Name: "minutes", Text: func(h prospect.HurtOn) string { return fmt.Sprint(h.Minutes) }},
	{Name: "nodes", Text: func(h prospect.HurtOn) string { return fmt.Sprint(h.Nodes) }}, // the last one: a single node does not show it
}

// hurtSection names who is hurt today, and by whom.
func hurtSection(f prospect.Fleet) page.Section {
	all, columns := f.Hurt, hurtColumns
	if f.Nodes == 1 {
		columns = columns[:len(columns)-1]
	}
	if len(all) == 0 {
		return page.Section{}
	}
	var neighbours, limits []prospect.HurtOn
	for _, h := range all {
		if h.By == "" {
			limits = append(limits, h)
		} else {
			neighbours = append(neighbours, h)
		}
	}
	s := page.Section{Title: "Who is hurt already", Table: page.Down(columns, append(neighbours, limits...))}
	if len(limits) > 0 {
		s.Legend = "Lost is the time that threads waited for a CPU while the other ran. For " + limit + " it is the time that the kernel held the service back, " +
			"and no neighbour is to blame: a higher limit, or CPU burst, helps there."
	} else {
		s.Legend = "Lost is the time that threads waited for a CPU while the other ran."
	}
	return s
}

// short keeps the end of a long name, which tells cgroups and pods apart.
func short(name string) string {
	const most = 34
	if textlayout.Columns(name) <= most {
		return name
	}
	runes := []rune(name)
	return "…" + string(runes[len(runes)-most+1:])
}

// workSection says which work could move into the room, and what that would save.
func (v View) workSection() page.Section {
	s, c := page.Section{Title: "What you have that could run there"}, v.Fleet.Saving
	switch c.Code {
	case prospect.BatchUnknown:
		if jobs, known := v.Jobs.Value(); known {
			return v.jobsSection(s, jobs)
		}
		s.Text = "It is not known which work could be batch work, so no saving is counted."
		if v.JobsUnread != "" {
			s.Text += " Jobs were not read: " + v.JobsUnread + "."
		}
		return s
	case prospect.Unmeasured:
		s.Text = "Which work could be batch work is known, but the room or the use of its nodes was not measured, so no saving is counted."
		return s
	case prospect.NoBatchWork:
		s.Text = "No work was seen that could be batch work, so nothing is saved. What lacks is batch work, not room."
		return s
	}
	s.Text = fmt.Sprintf("Work that could be batch work uses %s CPUs on average, %s CPU-hours a day.", cores(c.Work), decimal(c.Work.Cores()*24))
	if c.Code == prospect.NoRoom {
		s.Text += " There was no room for it."
		return s
	}
	s.Items = append(s.Items, "If it ran"+evenly(cores(c.Low.CPU)+" CPUs", cores(c.High.CPU)+" CPUs"))
	if c.Code == prospect.OneNode {
		s.Items = append(s.Items, "That frees CPU for other work on this node. A single node cannot be given back, so no saving is counted.")
		return s
	}
	s.Items = append(s.Items, v.nodesFewer())
	if c.Nodes < v.Fleet.Nodes {
		s.Items = append(s.Items, fmt.Sprintf("This counts %d of %d nodes: of the others, the batch work, the room or the use is not known.", c.Nodes, v.Fleet.Nodes))
	}
	return s
}

// evenly ends a sentence about what fits into the room. It compares a mean with the room, of
// which one value is a quantile. The two compare only for work that runs evenly.
func evenly(low, mean string) string {
	return fmt.Sprintf(" evenly over the day, %s of it would fit into the room of 95%% of the time, and %s into the mean room.", low, mean)
}

// nodesFewer says how many nodes could be given back, and what they cost.
func (v View) nodesFewer() string {
	low, high := v.Fleet.Saving.Low.Nodes, v.Fleet.Saving.High.Nodes
	low, high = min(low, high), max(low, high)
	if high == 0 {
		return "No node can be given back by it: the rest of the work does not fit on fewer nodes at today's peak."
	}
	text := textlayout.Plural(high, "node", "nodes")
	if low < high {
		text = fmt.Sprintf("%d to %s", low, text)
	}
	text += " fewer, if you remove them and load no other node above today's peak of its pool"
	if price, known := v.Price.Value(); known {
		cost := fmt.Sprintf("%.2f", float64(high)*price)
		if low < high {
			cost = fmt.Sprintf("%.2f to %s", float64(low)*price, cost)
		}
		text += fmt.Sprintf(": %s an hour, at your price of %.2f for a node and hour", cost, price)
	}
	return text + "."
}
