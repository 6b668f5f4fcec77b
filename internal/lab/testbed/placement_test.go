package testbed

import (
	"errors"
	"strings"
	"testing"

	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// cores returns a topology of n CPUs with the given number of threads per core.
// The numbers of siblings are n/threads apart, as on Linux.
func cores(n, threads int) node.Topology {
	var t node.Topology
	for i := range n {
		t.CPUs = append(t.CPUs, node.LogicalCPU{ID: unit.CPU(i), Core: node.CoreID(i % (n / threads))})
	}
	return t
}

func set1(t *testing.T, list string) unit.CPUSet {
	t.Helper()
	s, err := unit.ParseCPUSet(list)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestPlace(t *testing.T) {
	tests := map[string]struct {
		topology             node.Topology
		allowed              string
		cpus, clientCPUs     string
		tested, client, fail string
		few                  TooFewCPUs
	}{
		"two CPUs":                        {topology: cores(2, 1), tested: "0", client: "1"},
		"two threads of one core":         {topology: cores(2, 2), tested: "0", client: "1"},
		"four CPUs":                       {topology: cores(4, 1), tested: "0-2", client: "3"},
		"whole cores":                     {topology: cores(8, 2), tested: "0-2,4-6", client: "3,7"},
		"an eighth of a hundred and four": {topology: cores(104, 2), tested: "0-44,52-96", client: "45-51,97-103"},
		"affinity":                        {topology: cores(8, 1), allowed: "2,5", tested: "2", client: "5"},
		"tested given":                    {topology: cores(4, 1), cpus: "0-1", tested: "0-1", client: "3"},
		"tested all but one core":         {topology: cores(4, 2), cpus: "0,2", tested: "0,2", client: "1,3"},
		"client given":                    {topology: cores(4, 1), clientCPUs: "0", tested: "1-3", client: "0"},
		"both given":                      {topology: cores(4, 1), cpus: "3", clientCPUs: "0", tested: "3", client: "0"},
		"one CPU":                         {topology: cores(1, 1), few: TooFewCPUs{"the load generator and the tested work", 2000, 1000}},
		"no CPU left for the client":      {topology: cores(2, 1), cpus: "0-1", few: TooFewCPUs{"the load generator", 1000, 0}},
		"no CPU left to test":             {topology: cores(2, 1), clientCPUs: "0-1", few: TooFewCPUs{"the tested work", 1000, 0}},
		"overlap":                         {topology: cores(4, 1), cpus: "0-2", clientCPUs: "2-3", fail: "share CPU 2"},
		"not online":                      {topology: cores(4, 1), cpus: "3-4", fail: "CPU 4 is not online"},
		"not allowed":                     {topology: cores(4, 1), allowed: "0-2", clientCPUs: "3", fail: "CPU 3 is not online or not allowed"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			allowed := tt.topology.All()
			if tt.allowed != "" {
				allowed = set1(t, tt.allowed)
			}
			p, err := Place(tt.topology, allowed, set1(t, tt.cpus), set1(t, tt.clientCPUs), !NoClient)
			if tt.fail != "" || tt.few.Need > 0 {
				var few TooFewCPUs
				if errors.As(err, &few); err == nil || !strings.Contains(err.Error(), tt.fail) || few != tt.few {
					t.Fatalf("error %v, want %q, %v", err, tt.fail, tt.few)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if p.Tested != set1(t, tt.tested) || p.Client != set1(t, tt.client) {
				t.Errorf("tested %v client %v, want %s and %s", p.Tested, p.Client, tt.tested, tt.client)
			}
		})
	}
}

func TestPlacementIsDisjoint(t *testing.T) {
	for n := 2; n <= 64; n++ {
		for _, threads := range []int{1, 2} {
			if n%threads != 0 {
				continue
			}
			top := cores(n, threads)
			p, err := Place(top, top.All(), unit.CPUSet{}, unit.CPUSet{}, !NoClient)
			if err != nil {
				t.Fatalf("%d CPUs: %v", n, err)
			}
			if !p.Tested.Intersect(p.Client).Empty() || p.Tested.Empty() || p.Client.Empty() || p.Tested.Union(p.Client) != top.All() {
				t.Errorf("%d CPUs, %d threads per core: tested %v client %v", n, threads, p.Tested, p.Client)
			}
			if p.SharesCore(top) && n/threads > 1 {
				t.Errorf("%d CPUs, %d threads per core: a core is shared: tested %v client %v", n, threads, p.Tested, p.Client)
			}
		}
	}
}

func TestWithoutAClientAllIsTested(t *testing.T) {
	p, err := Place(cores(4, 2), set1(t, "0-2"), unit.CPUSet{}, unit.CPUSet{}, NoClient)
	if err != nil || p.Tested != set1(t, "0-2") || !p.Client.Empty() {
		t.Errorf("%+v, %v: want all allowed CPUs", p, err)
	}
	if p, err = Place(cores(1, 1), set1(t, "0"), unit.CPUSet{}, unit.CPUSet{}, NoClient); err != nil || p.Tested != set1(t, "0") {
		t.Errorf("one CPU: %+v, %v", p, err)
	}
	if _, err = Place(cores(4, 1), set1(t, "0-3"), unit.CPUSet{}, set1(t, "3"), NoClient); err == nil {
		t.Error("client CPUs are accepted in an experiment without a client")
	}
}

func TestTheLabLeavesTheClientItsCPUs(t *testing.T) {
	for client, want := range map[string][2]string{
		"3":     {"3", "3"}, // one CPU is shared
		"2-3":   {"3", "2"},
		"5,7-9": {"7-9", "5"},
	} {
		if p := (Placement{Client: set1(t, client)}).reserveCPU(); p.Client.String() != want[0] || p.Lab.String() != want[1] {
			t.Errorf("client CPUs %s: client %v, lab %v, want %v", client, p.Client, p.Lab, want)
		}
	}
}
