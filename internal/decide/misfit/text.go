package misfit

import (
	"fmt"
	"strings"

	"tenon.sh/tenon/internal/decide/facts"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// sentence returns the sentence about what does not fit: "16 threads,
// 12 of them runnable, …".
func (m *Misfit) sentence() string {
	var b strings.Builder
	threads, counted := m.Threads.Value()
	runnable, known := m.Runnable.Value()
	switch {
	case counted && known:
		fmt.Fprintf(&b, "%s, on average %s runnable, share", count(threads, "thread"), tenths(runnable))
	case known:
		fmt.Fprintf(&b, "on average %s runnable threads share", tenths(runnable))
	default:
		b.WriteString("its threads share")
	}
	fmt.Fprintf(&b, " a limit of %s on %s: they use it up and stand still in %v of its periods",
		cpus(m.Limit), facts.CountCPUs(m.CPUs), m.Throttled)
	return b.String()
}

// advice returns the sentence about what the owner should set in place of the
// limit.
func (m *Misfit) advice() string {
	var all []string
	if m.Kind == Threads {
		all = append(all, "start it with "+count(m.seats(), "thread"))
		if m.Class == node.BE && m.Limit%unit.CPUs(1) == 0 {
			all = append(all, "give it "+facts.CountCPUs(m.seats())+" in place of time (policies.cpuLimitSeats)")
		}
	}
	if n, known := m.Runnable.Value(); known {
		if wants := min(int((n+halfThread)/unit.CPUs(1)), m.CPUs); unit.CPUs(wants) > m.Limit {
			all = append(all, fmt.Sprintf("set the limit to %d", wants))
		}
	}
	if m.Class == node.BE {
		all = append(all, "set no limit: best-effort work gives way without one")
	} else {
		all = append(all, fmt.Sprintf("set no limit, and a request of %s", cpus(m.Limit)))
	}
	return strings.Join(all, "; or ")
}

// cpus prints an amount of CPU: "1.5 CPUs".
func cpus(m unit.MilliCPU) string {
	text := strings.TrimRight(strings.TrimRight(fmt.Sprintf("%.3f", float64(m)/1000), "0"), ".")
	if m == unit.CPUs(1) {
		return text + " CPU"
	}
	return text + " CPUs"
}

// tenths prints a number of threads in thousandths: "3.5".
func tenths(m unit.MilliCPU) string {
	return strings.TrimSuffix(fmt.Sprintf("%.1f", float64(m)/1000), ".0")
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
