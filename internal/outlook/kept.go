package outlook

import (
	"fmt"

	"tenon.sh/tenon/internal/decide/prospect"
	"tenon.sh/tenon/internal/lab/page"
	"tenon.sh/tenon/internal/table"
)

// A KeptView sets what nodes have promised beside what came.
type KeptView struct {
	Of         string // as in View
	Fleet      prospect.Fleet
	Shortfalls []prospect.Shortfall
}

// mostShortfalls is the number of shortfalls that a page lists.
const mostShortfalls = 20

// resourceWords are the names of the resources of a shortfall.
var resourceWords = map[string]string{prospect.ResourceCPU: "CPU", prospect.ResourceMemory: "memory"}

// Page returns the page.
func (v KeptView) Page() page.Page {
	p := page.Page{Title: "How many promises were kept?", Meta: "Counted by Tenon. A promise is kept if the room is at no minute of its hours below it."}
	judged := int64(0)
	for _, k := range v.Fleet.CPU.Promised {
		judged += k.Judged
	}
	for _, k := range v.Fleet.Memory.Promised {
		judged += k.Judged
	}
	if judged == 0 {
		p.Lead = []string{"Nothing is known of the promises of " + v.Of + ": no promise has ended yet."}
		return p
	}
	p.Lead = []string{fmt.Sprintf("What %s promised in the last four to eight weeks, and what came: %s have ended.", v.Of, table.Count(int(judged), "promise"))}
	s := promisesSection(v.Fleet)
	s.Title = "All together"
	p.Sections = append(p.Sections, s)
	if len(v.Shortfalls) == 0 {
		p.Lead = append(p.Lead, "No single node has kept a kind of promise clearly less often than it said.")
		return p
	}
	nodes := map[string]bool{}
	for _, f := range v.Shortfalls {
		nodes[f.Node] = true
	}
	p.Lead = append(p.Lead, table.Count(len(nodes), "node")+" kept a kind of promise clearly less often than said.")
	by := page.Section{Title: "Kept less often than said", Table: page.Table{Heads: []page.Head{{Text: "node"}, {Text: "promise"}, {Text: "ended"}, {Text: "kept"}, {Text: "share"}}}}
	for _, f := range v.Shortfalls[:min(len(v.Shortfalls), mostShortfalls)] {
		by.Table.Rows = append(by.Table.Rows, page.Row{Label: f.Node, Cells: []string{
			fmt.Sprintf("%s for %d h with %v", resourceWords[f.Resource], f.Hours, f.Percent), fmt.Sprint(f.Promises), fmt.Sprint(f.Kept), fmt.Sprintf("%d%%", 100*f.Kept/f.Promises),
		}})
	}
	if more := len(v.Shortfalls) - mostShortfalls; more > 0 {
		by.Legend = fmt.Sprintf("And %d more, which -o json lists.", more)
	}
	p.Sections = append(p.Sections, by)
	return p
}
