package cpumap

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"tenon.sh/tenon/internal/model/cpus"
)

// TestMarksDifferByMoreThanTheirCase names pods with own CPUs and with seats.
func TestMarksDifferByMoreThanTheirCase(t *testing.T) {
	for _, x := range []struct {
		own, seats, same int // same: pairs of marks that differ by case only
	}{{2, 3, 0}, {20, 6, 0}, {20, 10, 4}, {26, 26, 26}, {30, 40, 0}} {
		m := &Map{}
		for i := range x.own + x.seats {
			o := Owner{Pod: fmt.Sprint(i), Policy: cpus.Exclusive}
			if i >= x.own {
				o.Policy = cpus.Shared
			}
			m.owners = append(m.owners, o)
		}
		m.name()
		marks, lower := map[string]bool{}, map[string]bool{}
		for _, o := range m.owners {
			marks[o.mark], lower[strings.ToLower(o.mark)] = true, true
		}
		if len(marks) != len(m.owners) || len(m.owners)-len(lower) != x.same {
			t.Errorf("%d own and %d seats have %d marks, and %d without their case", x.own, x.seats, len(marks), len(lower))
		}
	}
}

// TestEachCPUIsShownOnce counts the marks in the lines of text.
func TestEachCPUIsShownOnce(t *testing.T) {
	for name, scene := range scenes {
		m := scene()
		counts, cpus := map[string]int{}, 0
		m.eachPart(func(p *part) {
			for _, row := range rows(p.cores, 1) {
				for _, core := range row {
					for c := range core.All() {
						counts[m.mark(c)]++
						cpus++
					}
				}
			}
		})
		if cpus != m.m.Len() {
			t.Errorf("%s: %d CPUs, want %d", name, cpus, m.m.Len())
		}
		if name == "256 CPUs" && (counts["##"] != 2 || counts["AA"] != 4 || counts["BH"] != 4 || counts["++"] != 1) {
			t.Errorf("%s: %v", name, counts)
		}
	}
}

// TestTextStaysWithinItsColumns checks that only names may make a line too
// long, and that the descriptions of all owners begin in one column.
func TestTextStaysWithinItsColumns(t *testing.T) {
	for name, scene := range scenes {
		m := scene()
		text := m.Text()
		at := map[int]bool{}
		for line := range strings.SplitSeq(text, "\n") {
			isName := false
			for i := range m.owners {
				isName = isName || strings.HasSuffix(line, m.owners[i].Pod)
				if before, _, found := strings.Cut(line, "  "+m.describe(&m.owners[i])[:4]); found {
					at[utf8.RuneCountInString(before)] = true
				}
			}
			if n := utf8.RuneCountInString(line); n > columns && !isName {
				t.Errorf("%s: a line of %d columns: %s", name, n, line)
			}
			if strings.HasSuffix(line, " ") {
				t.Errorf("%s: a line ends with a space: %q", name, line)
			}
		}
		if len(at) > 1 {
			t.Errorf("%s: the descriptions begin in the columns %v:\n%s", name, at, text)
		}
		for i := range m.owners {
			if !strings.Contains(text, m.owners[i].Pod) {
				t.Errorf("%s: the name %s is not there in full", name, m.owners[i].Pod)
			}
		}
	}
}

// TestTextExplainsItsMarks checks the legend of the text.
func TestTextExplainsItsMarks(t *testing.T) {
	text := scenes["16 CPUs"]().Text()
	for _, want := range []string{
		"16 CPUs, 10 open; 1 socket, 1 NUMA node, 2 L3 caches, 8 cores of 2 CPUs\n", "  AA AA Bd c+  3 of 8 open, 1000m requested\n", ", pool of e\n",
		"A group of marks is a core, and each mark is one of its CPUs, the lowest number first.\n", "A pool is all open CPUs of the part beside which it stands.", "#  reserved: no pod may own it\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

// TestUnusualNodesAreShown checks parts of the texts of unusual nodes.
func TestUnusualNodesAreShown(t *testing.T) {
	for name, want := range map[string][]string{
		"no CPUs":             {"worker-1: the report names no CPU\nreported 2026-03-01T11:59:50Z; this map was made 2026-03-01T12:00:00Z, 10s later\n"},
		"SMT off":             {"8 cores of 1 CPU\n", "L3 0  0-3  # A A B  0 of 4 open", "Each mark is a core with one CPU.\n", "2 CPUs: 3,12; not online: CPU 12\n"},
		"one sibling offline": {"not online: CPU 8,12-13\n", "8 cores\n", "L3 0  0-3,9-11   # A. A. ..  4 of 7 open\n"},
		"one L3":              {"1 L3 cache, 64 cores of 2 CPUs\n", "94 of 128 open, 4000m requested, pool of b\n", "    L3 0  0-15,64-79     ## AA ", "          48-63,112-127  .. ", "the open CPUs of one L3 cache (0-127), "},
		"sub-NUMA":            {"4 NUMA nodes, 2 L3 caches in 4 parts, ", "part of L3 0  0-7,32-39    ## AA", "socket 0, 24 of 32 CPUs open, 8000m requested, pool of b\n", "16 of 16 open, 4000m requested, pool of c\n"},
		"alternating":         {"    L3 0  0,2,...,30,48,50,...,78    ## AA ", "          32,34,...,46,80,82,...,94  .. ", "12 CPUs: 2,4,...,12,50,52,...,60\n"},
		"two kinds of cores":  {"; 1 socket, 1 NUMA node, 1 L3 cache, 12 cores\n", "  AA .. .. .. . . . . . . . .  "},
		"many pools":          {", pool of ab\n", ", pools of ac ad\n", "the open CPUs of the node (0-31), ", "aa/aa ../.. "},
		"a grown pool":        {"L3 1  4-7    . . . .  4 of 4 open, grown pool of a\n", "one L3 cache (0-3), requests 4000m; has grown into CPUs 4-7\n"},
		"2 CPUs":              {"L3 0  0-1  b A  1 of 2 open, 4500m requested, pool of c\n"},
		"a contested CPU":     {"A ! B .", "!  several pods are bound to it: the pod that had it first keeps it, and the node chooses CPUs for the others\n"},
	} {
		text := scenes[name]().Text()
		for _, want := range want {
			if !strings.Contains(text, want) {
				t.Errorf("%s: no %q in\n%s", name, want, text)
			}
		}
	}
}

// TestAHomeThatIsNoPartAnyMoreIsShown checks an owner whose pool belongs to an
// earlier topology of the node.
func TestAHomeThatIsNoPartAnyMoreIsShown(t *testing.T) {
	if text := of(machine(1, 2, 2, 2), "", pool("ns/p", "0-1,4", "0-1,4")).Text(); !strings.Contains(text, "L3 0  0-1,4-5  .. ..  4 of 4 open, 4000m requested, pool of a\n") {
		t.Error(text)
	}
	if text := of(machine(1, 2, 2, 2), "", pool("ns/p", "", "")).Text(); !strings.Contains(text, "4 cores of 2 CPUs, pool of a\n") {
		t.Error(text)
	}
}
