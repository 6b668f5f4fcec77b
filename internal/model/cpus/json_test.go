package cpus

import (
	"encoding/json"
	"reflect"
	"testing"

	"tenon.sh/tenon/internal/model/unit"
)

// TestARecordKeepsTheCPUsOfAPod writes the values as JSON, as a record of the loop
// does, and reads them back.
func TestARecordKeepsTheCPUsOfAPod(t *testing.T) {
	set, domain := unit.CPUSetOf(1, 3), unit.CPUSetOf(0, 1, 2, 3)
	request := Request{Policy: Shared, CPUs: 2, CPU: 500, Bind: OnlySpread, Within: NUMA, Fewest: true, Exclusive: PCPULevel}
	for _, v := range []any{
		&request,
		&PodRequest{Request: request, Grows: true, Containers: []ContainerRequest{{Name: "web", CPUs: 2}}, Memory: 1 << 30},
		&Choice{Topology: 0xff, Policy: Pool, CPUs: set, Domain: domain, Containers: map[string]unit.CPUSet{"web": set}},
		&Allocation{Policy: Exclusive, CPUs: set, Domain: domain, CPU: 1500, Exclusive: NUMANodeLevel},
		&Note{
			By: ByNode, Policy: Shared, Asked: 3, Has: 2, Level: L3, Nodes: 1, Split: 1, Moved: true, Bound: true, Growth: []Growth{{Code: GrowthFull, CPUs: set, Percent: 1, For: 2, Full: 3, FullFor: 4, Taken: set, Workload: "web"}},
			Reason: &Reason{Code: SharedRequested, Request: request, Given: 1, Open: 2, Stay: 3, Cores: 4, Sizes: []int{1, 2}, CPU: 5, Shared: 6},
			Choice: &Reason{Code: ChoiceTaken, CPUs: set, Others: []string{"a"}, OthersMore: 2, Policy: Pool},
		},
	} {
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		back := reflect.New(reflect.TypeOf(v).Elem()).Interface()
		if err := json.Unmarshal(text, back); err != nil || !reflect.DeepEqual(v, back) {
			t.Errorf("%s is read as %+v: %v", text, back, err)
		}
	}
	var p Policy
	if err := p.UnmarshalText([]byte("own")); err == nil {
		t.Error("a policy of the release before is read")
	}
	var h Hash
	if err := h.UnmarshalText([]byte("FF")); err == nil {
		t.Error("a short hash is read")
	}
}
