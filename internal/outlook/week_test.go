package outlook

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"tenon.sh/tenon/internal/decide/prospect"
	"tenon.sh/tenon/internal/lab/textlayout"
	"tenon.sh/tenon/internal/model/unit"
)

// weekly makes nodes of 32 CPUs, with 4 CPUs of room on working days and more on weekends,
// for a number of days from a Monday on.
func weekly(nodes, days int, more int64) (all []prospect.Outlook) {
	const monday = 20_444
	for range nodes {
		n := prospect.Node{CPU: 32_000, Memory: 128 << 30, Step: 30, Start: monday * minutesOfDay}
		for s := range days * 48 {
			room := 4000 + int64(s%7)
			if s/48%7 >= 5 {
				room += more
			}
			n.RoomCPU, n.RoomMemory = append(n.RoomCPU, room), append(n.RoomMemory, 40_000)
		}
		all = append(all, prospect.Summarize(n))
	}
	return all
}

// withoutWeekendHour makes outlooks of nodes that were not seen at 7:00 on weekends.
func withoutWeekendHour(all []prospect.Outlook) []prospect.Outlook {
	for i := range all {
		all[i].Week.Weekend.Hours[7] = prospect.Spread[unit.MilliCPU]{}
	}
	return all
}

// TestWeekendsHaveTheirRowsIfTheyDiffer prints pages of weekends that differ, that differ on
// some nodes only, and that are as all days.
func TestWeekendsHaveTheirRowsIfTheyDiffer(t *testing.T) {
	const lead, one, some = "On working days (Monday to Friday) it was", "One weekend was seen", "The rows are of the 2 nodes of which both kinds of days are known"
	for name, c := range map[string]struct {
		all      []prospect.Outlook
		want     []string
		not      []string
		pictures int
	}{
		"two weeks":    {weekly(2, 14, 8000), []string{lead + " 8.0 CPUs on average, and 24.0 on weekends.", "Mon-Fri CPUs, mean", "Sat-Sun CPUs, 95% of time"}, []string{one, some, "\nCPUs, mean"}, 3},
		"a week":       {weekly(1, 7, 8000), []string{lead, one}, []string{some, "\nCPUs, mean"}, 3},
		"a young node": {append(weekly(2, 14, 8000), weekly(1, 4, 0)...), []string{lead + " 8.0 CPUs on average, and 24.0 on weekends (2 of these 3 nodes).", some + " at each hour."}, []string{one}, 3},
		// Both kinds of days were seen on it: the reason why it is missing is an hour of one of them.
		"a node with a hole": {append(weekly(2, 14, 8000), withoutWeekendHour(weekly(1, 14, 8000))...), []string{some + " at each hour."}, []string{"seen on both", one}, 3},
		"holes everywhere":   {append(withoutWeekendHour(weekly(2, 14, 8000)), weekly(1, 4, 0)...), []string{some + "."}, []string{"at each hour", one}, 3},
		"all alike":          {weekly(2, 14, 0), []string{"\nCPUs, mean"}, []string{lead, "Mon-Fri", "weekends"}, 2},
	} {
		p := View{Of: "The nodes", Fleet: prospect.Sum(c.all)}.Page()
		var text, html bytes.Buffer
		if err := errors.Join(p.WriteText(&text), p.WriteHTML(&html)); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(text.String()) {
			if n := textlayout.Columns(strings.TrimSuffix(line, "\n")); n > textlayout.Width {
				t.Errorf("%s: %d columns: %s", name, n, line)
			}
		}
		words := text.String() + strings.Join(strings.Fields(text.String()), " ")
		for _, want := range c.want {
			if !strings.Contains(words, want) {
				t.Errorf("%s: %q is not in\n%s", name, want, text.String())
			}
		}
		for _, not := range c.not {
			if strings.Contains(words, not) {
				t.Errorf("%s: %q is in\n%s", name, not, text.String())
			}
		}
		checkPictures(t, name, html.Bytes())
		for _, s := range p.Sections {
			if s.Title == "By hour of the day" && len(s.Plots) != c.pictures {
				t.Errorf("%s: %d pictures by hour, want %d", name, len(s.Plots), c.pictures)
			}
		}
	}
}
