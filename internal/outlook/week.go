package outlook

import (
	"fmt"

	"tenon.sh/tenon/internal/decide/prospect"
	"tenon.sh/tenon/internal/model/unit"
	"tenon.sh/tenon/internal/table"
)

// A cpuPart is the room of CPU on some days: low and mean are its names in a table, title
// that of its picture.
type cpuPart struct {
	low, mean, title string
	supply           prospect.Supply[unit.MilliCPU]
}

// cpuParts returns what the section by hour shows of CPU: all days together, or working days
// and weekends if these differ.
func cpuParts(f prospect.Fleet) []cpuPart {
	w := f.Week
	if !w.Differ {
		return []cpuPart{{"CPUs, 95% of the time", "CPUs, mean", "CPUs", f.CPU}}
	}
	supply := func(p prospect.Part) prospect.Supply[unit.MilliCPU] {
		return prospect.Supply[unit.MilliCPU]{Nodes: w.Nodes, Capacity: w.Capacity, All: p.All, Hours: p.Hours}
	}
	return []cpuPart{
		{"Mon-Fri CPUs, 95% of time", "Mon-Fri CPUs, mean", "CPUs, Monday to Friday", supply(w.Weekdays)},
		{"Sat-Sun CPUs, 95% of time", "Sat-Sun CPUs, mean", "CPUs, Saturday and Sunday", supply(w.Weekend)},
	}
}

// weekLead sets working days beside weekends for a reader who reads nothing else. all is the
// number of nodes that the sentence before it counts.
func weekLead(w prospect.FleetWeek, all int) string {
	text := fmt.Sprintf("On working days (Monday to Friday) it was %s CPUs on average, and %s on weekends", cores(w.Weekdays.All.Mean), cores(w.Weekend.All.Mean))
	if w.Nodes < all {
		text += fmt.Sprintf(" (%d of these %d nodes)", w.Nodes, all)
	}
	return text + "."
}

// weekNote says why CPU has rows for two kinds of days, and on what they rest.
func weekNote(f prospect.Fleet) string {
	text := "Working days and weekends (UTC) differ by more than the days of one kind do among themselves, so each has its rows of CPUs. All other numbers of this page are of all days."
	if f.Week.Weekends == 1 {
		text += " One weekend was seen: others may differ."
	}
	if f.Week.Nodes < f.CPU.Nodes {
		text += fmt.Sprintf(" The rows are of the %s of which both kinds of days are known", table.Count(f.Week.Nodes, "node"))
		if f.Week.Weekdays.Whole() && f.Week.Weekend.Whole() {
			text += " at each hour" // without such a node, those with some hours count
		}
		text += "."
	}
	return text
}
