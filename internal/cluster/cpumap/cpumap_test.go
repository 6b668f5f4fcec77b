package cpumap

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"tenon.sh/tenon/internal/decide/pick"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// machine returns a topology with these numbers of sockets, caches of a socket,
// cores of a cache, and threads of a core.
func machine(sockets, caches, cores, threads int) node.Topology {
	var t node.Topology
	for c := range sockets * caches * cores * threads {
		core := c / threads
		socket := core / cores / caches
		t.CPUs = append(t.CPUs, node.LogicalCPU{
			ID: unit.CPU(c), Core: node.CoreID(core), L3: node.CacheID(core / cores), NUMA: node.NUMANode(socket), Socket: node.SocketID(socket),
		})
	}
	return t
}

// manyOwners returns a map of 256 CPUs with 40 owners.
func manyOwners() *Map {
	t := machine(2, 8, 8, 2)
	var owners []Owner
	for i := range 40 {
		owners = append(owners, Owner{Name: fmt.Sprintf("<ns>/p%d", i), Hold: pick.Hold{Grade: pick.Own, CPUs: unit.CPUSetOf(unit.CPU(5*i), unit.CPU(5*i+1))}})
	}
	owners = append(owners, Owner{Name: "ns/pool", Hold: pick.Hold{Grade: pick.Pooled, Home: t.All(), CPUs: t.All(), Request: 1500}})
	return New("n", "", t, unit.CPUSetOf(255), 1, owners)
}

// TestThePictureIsWellFormed checks that the SVG is XML, even if names contain
// markup.
func TestThePictureIsWellFormed(t *testing.T) {
	m := manyOwners()
	for name, text := range map[string]string{"svg": m.SVG(), "one CPU": New("a", "", machine(1, 1, 1, 1), unit.CPUSet{}, 0, nil).SVG()} {
		d := xml.NewDecoder(strings.NewReader(text))
		rects := 0
		for {
			token, err := d.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if s, is := token.(xml.StartElement); is && s.Name.Local == "rect" {
				rects++
			}
		}
		if name == "svg" && rects < 256+16+40 {
			t.Errorf("%d rectangles for 256 CPUs", rects)
		}
	}
	if !strings.Contains(m.HTML(), "&lt;ns&gt;/p7") || strings.Contains(m.HTML(), "<ns>") {
		t.Error("the names of the owners are not escaped")
	}
}

// TestEachCPUIsShownOnce counts the marks of owned CPUs, of the reserved CPU,
// and of all other CPUs.
func TestEachCPUIsShownOnce(t *testing.T) {
	m := manyOwners()
	counts := map[string]int{}
	cpus := 0
	m.eachPart(func(p *part) {
		for _, core := range p.cores {
			for c := range core.All() {
				counts[m.mark(c)]++
				cpus++
			}
		}
	})
	if cpus != 256 || counts[markReserved] != 1 || counts["A"] != 2 || counts["BA"] != 2 || counts[markOpen] != 256-81 {
		t.Errorf("%d CPUs: %v", cpus, counts)
	}
	for _, line := range strings.Split(m.Text(), "\n") {
		if len(line) > 160 {
			t.Errorf("a line of %d columns: %s", len(line), line)
		}
	}
	if text := m.Text(); !strings.Contains(text, "16 L3 caches, pool of a\n") {
		t.Error(text)
	}
}

// TestAHomeThatIsNoPartAnyMoreIsShown checks an owner whose pool belongs to an
// earlier topology of the node.
func TestAHomeThatIsNoPartAnyMoreIsShown(t *testing.T) {
	o := Owner{Name: "ns/p", Hold: pick.Hold{Grade: pick.Pooled, Home: unit.CPUSetOf(1, 2), CPUs: unit.CPUSetOf(1, 2), Request: 500}}
	if text := New("n", "", machine(1, 2, 2, 2), unit.CPUSet{}, 0, []Owner{o}).Text(); !strings.Contains(text, "L3 0  0-3  .. ..  4 of 4 open, of which pods request 500m, pool of a\n") {
		t.Error(text)
	}
}
