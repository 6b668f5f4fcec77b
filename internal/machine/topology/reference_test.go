package topology

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// A place is the position of one CPU in the topology. It is read from files
// that package proc does not use: hexadecimal masks instead of lists, and links
// to NUMA nodes instead of the lists of nodes. These files and those of package
// proc describe the same facts.
type place struct {
	siblings, cache, socket unit.CPUSet // empty: the kernel does not show it
	numa                    int
}

// placesIn reads the online CPUs below a directory that stands for /sys.
func placesIn(t *testing.T, sys string) map[unit.CPU]place {
	t.Helper()
	all := map[unit.CPU]place{}
	dirs, _ := filepath.Glob(filepath.Join(sys, "devices/system/cpu/cpu[0-9]*"))
	online := " " + strings.ReplaceAll(expand(t, text(filepath.Join(sys, "devices/system/cpu/online"))), ",", " ") + " "
	for _, dir := range dirs {
		id := strings.TrimPrefix(filepath.Base(dir), "cpu")
		if !strings.Contains(online, " "+id+" ") {
			continue
		}
		n, err := strconv.Atoi(id)
		if err != nil {
			t.Fatal(err)
		}
		p := place{
			siblings: bitmap(t, dir, "topology/core_cpus", "topology/thread_siblings"),
			socket:   bitmap(t, dir, "topology/package_cpus", "topology/core_siblings"),
		}
		if strings.HasPrefix(text(filepath.Join(dir, "topology/physical_package_id")), "-") {
			p.socket = unit.CPUSet{}
		}
		indexes, _ := filepath.Glob(filepath.Join(dir, "cache/index*"))
		for _, index := range indexes {
			if text(filepath.Join(index, "level")) == "3" {
				p.cache = bitmap(t, index, "shared_cpu_map")
			}
		}
		entries, _ := os.ReadDir(dir)
		for _, e := range entries {
			if numa := regexp.MustCompile(`^node([0-9]+)$`).FindStringSubmatch(e.Name()); numa != nil {
				p.numa, _ = strconv.Atoi(numa[1])
			}
		}
		all[unit.CPU(n)] = p
	}
	return all
}

func text(path string) string {
	b, _ := os.ReadFile(path)
	return strings.TrimSpace(string(b))
}

// expand turns "0-2,5" into "0,1,2,5".
func expand(t *testing.T, list string) string {
	t.Helper()
	var all []string
	for _, part := range strings.Split(list, ",") {
		from, to, ranged := strings.Cut(part, "-")
		if !ranged {
			to = from
		}
		a, err1 := strconv.Atoi(from)
		b, err2 := strconv.Atoi(to)
		if err1 != nil || err2 != nil {
			t.Fatalf("list %q", list)
		}
		for ; a <= b; a++ {
			all = append(all, strconv.Itoa(a))
		}
	}
	return strings.Join(all, ",")
}

// bitmap reads the first of the named files that exists.
func bitmap(t *testing.T, dir string, names ...string) unit.CPUSet {
	t.Helper()
	for _, name := range names {
		digits := strings.ReplaceAll(text(filepath.Join(dir, name)), ",", "")
		if digits == "" {
			continue
		}
		var set unit.CPUSet
		for i, digit := range slices.Backward([]byte(digits)) {
			v, err := strconv.ParseUint(string(digit), 16, 8)
			if err != nil {
				t.Fatalf("%s/%s: %v", dir, name, err)
			}
			for bit := range 4 {
				if v>>bit&1 == 1 {
					set = set.With(unit.CPU((len(digits)-1-i)*4 + bit))
				}
			}
		}
		return set
	}
	return unit.CPUSet{}
}

// differences compares a topology with the reference, CPU by CPU and pair by
// pair.
func differences(got node.Topology, want map[unit.CPU]place) []string {
	var all []string
	note := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	if len(got.CPUs) != len(want) {
		note("%d CPUs, want %d", len(got.CPUs), len(want))
	}
	groups := func(number func(node.LogicalCPU) int) map[int]unit.CPUSet {
		sets := map[int]unit.CPUSet{}
		for _, c := range got.CPUs {
			sets[number(c)] = sets[number(c)].With(c.ID)
		}
		return sets
	}
	cores := groups(func(c node.LogicalCPU) int { return int(c.Core) })
	caches := groups(func(c node.LogicalCPU) int { return int(c.L3) })
	sockets := groups(func(c node.LogicalCPU) int { return int(c.Socket) })
	inNode, anyShown := map[int]unit.CPUSet{}, false
	for c, p := range want {
		anyShown = anyShown || !p.cache.Empty() || !p.socket.Empty()
		inNode[p.numa] = inNode[p.numa].With(c)
	}
	online := unit.CPUSetOf(slices.Collect(maps.Keys(want))...)
	for _, c := range got.CPUs {
		p, shown := want[c.ID]
		if !shown {
			note("CPU %d is not online", c.ID)
			continue
		}
		core := p.siblings.Intersect(online).With(c.ID)
		if cores[int(c.Core)] != core {
			note("CPU %d: core of %v, want %v", c.ID, cores[int(c.Core)], core)
		}
		cache := p.cache
		switch {
		case !cache.Empty():
		case !p.socket.Empty():
			cache = p.socket
		case anyShown: // other CPUs have the file, so it is not known what this CPU shares
			cache = unit.CPUSetOf(c.ID)
		default:
			cache = inNode[p.numa]
		}
		if set := caches[int(c.L3)]; !set.Contains(cache.Intersect(online)) || cache.Empty() {
			note("CPU %d: cache of %v, want %v", c.ID, set, cache)
		}
		if set := sockets[int(c.Socket)]; !set.Contains(p.socket.Intersect(online)) {
			note("CPU %d: socket of %v, want %v", c.ID, set, p.socket)
		}
		if int(c.NUMA) != p.numa {
			note("CPU %d: NUMA node %d, want %d", c.ID, c.NUMA, p.numa)
		}
	}
	return all
}
