package top

import (
	"fmt"
	"time"

	"tenon.sh/tenon/internal/agent/control"
	"tenon.sh/tenon/internal/agent/printable"
)

// waiters returns a table of the services. It shows how long each of them waited
// for CPUs in a second, and which work ran on these CPUs meanwhile.
func (m model) waiters(room int) []string {
	const name = 28
	lines := []string{"", bold.Styled(fmt.Sprintf("%8s  %8s  %-*s  %s", "WAIT P99", "WANTED", name, "SERVICE by "+orderNames[m.order], "WAITED IN A SECOND"))}
	room = max(room-len(lines), 1)
	if len(m.rows) == 0 {
		return append(lines, "no service matches a rule")
	}
	cursor := m.cursor()
	first := min(max(cursor-room/2, 0), max(len(m.rows)-room, 0))
	for i, w := range m.rows[first:min(first+room, len(m.rows))] {
		p99, known := w.DelayP99.Value()
		want, wanted := w.Objective.Value()
		wait, most := fmt.Sprintf("%8s", control.Shown(w.DelayP99, rounded)), "-"
		if wanted {
			most = rounded(want)
		}
		rest := fmt.Sprintf("  %8s  %-*s  %s", most, name,
			tail(printable.Text(string(w.ID)), name), printable.Text(control.WaitedFor(w.Waits)))
		switch {
		case first+i == cursor:
			lines = append(lines, chosen.Styled(wait+rest))
		case known && wanted && p99 > want:
			lines = append(lines, alarming.Styled(wait)+rest)
		default:
			lines = append(lines, wait+rest)
		}
	}
	return lines
}

func rounded(d time.Duration) string { return control.Brief(d).String() }
