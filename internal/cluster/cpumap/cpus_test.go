package cpumap

import (
	"encoding/json"
	"testing"
)

// TestTheListOfCPUsIsTheMap compares the list for programs with the map, and
// shows some of its elements.
func TestTheListOfCPUsIsTheMap(t *testing.T) {
	for name, scene := range scenes {
		m := scene()
		all, open := set(""), set("")
		for _, c := range m.CPUs() {
			id := m.node.Topology.CPUs[all.Len()].ID
			if all.Add(id); c.CPU != int(id) {
				t.Fatalf("%s: CPU %d follows %d CPUs", name, c.CPU, all.Len()-1)
			}
			if c.Open {
				open.Add(id)
			}
		}
		if all != m.all() || open != m.open(m.all()) {
			t.Errorf("%s: %v, of which %v are open; want %v and %v", name, all, open, m.all(), m.open(m.all()))
		}
	}
	cpus := scenes["16 CPUs"]().CPUs()
	for i, want := range map[int]string{
		0:  `{"cpu":0,"core":0,"l3":0,"numa":0,"socket":0,"open":false,"owners":["shop/db-0"]}`,
		7:  `{"cpu":7,"core":7,"l3":1,"numa":0,"socket":0,"open":false,"reserved":true}`,
		11: `{"cpu":11,"core":3,"l3":0,"numa":0,"socket":0,"open":true,"seats":["shop/web-1","shop/web-0"]}`,
		12: `{"cpu":12,"core":4,"l3":1,"numa":0,"socket":0,"open":true,"pools":["shop/encode-0"]}`,
	} {
		if got, err := json.Marshal(cpus[i]); err != nil || string(got) != want {
			t.Errorf("%s, %v; want %s", got, err, want)
		}
	}
	if c := scenes["one L3"]().CPUs(); len(c[1].Owners) != 1 || len(c[1].Pools) != 0 || len(c[17].Pools) != 1 {
		t.Errorf("a pool contains CPUs that another pod owns: %+v, %+v", c[1], c[17])
	}
}
