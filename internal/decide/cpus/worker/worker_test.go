package worker

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"

	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

func everyone(node.WorkloadID) bool { return true }

func work(rule string, ids ...int) []node.Workload {
	var all []node.Workload
	for _, i := range ids {
		all = append(all, node.Workload{ID: node.WorkloadID(fmt.Sprintf("%s%d", rule, i)), Class: node.BE, Rule: rule})
	}
	return all
}

func TestWorkIsSpreadOverTheWorkers(t *testing.T) {
	all := []Slice{{Name: "enc", CPUs: 2, Count: 3, Rules: []string{"a", "b"}}, {Name: "one", CPUs: 1, Count: 1, Rules: []string{"c"}}}
	jobs := append(append(work("a", 1, 2, 3, 4), work("c", 1)...), work("other", 1)...)
	jobs = append(jobs, node.Workload{ID: "ls", Class: node.LS, Rule: "a"})
	got := Assign(all, nil, jobs, everyone)
	want := Places{"a1": {"enc", 1}, "a2": {"enc", 2}, "a3": {"enc", 3}, "a4": {"enc", 1}, "c1": {"one", 1}}
	if !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if got := Assign(all, got, jobs, func(id node.WorkloadID) bool { return id != "a1" }); got["a4"] != want["a4"] || len(got) != 4 {
		t.Errorf("a workload that takes no part: %v", got)
	}
	if got := Assign(nil, want, jobs, everyone); got != nil {
		t.Errorf("without slices: %v", got)
	}
}

func TestWorkMovesOnlyToEvenOutAndOneAtATime(t *testing.T) {
	all := []Slice{{Name: "enc", CPUs: 2, Count: 2, Rules: []string{"a"}}}
	before := Places{"a1": {"enc", 1}, "a2": {"enc", 1}, "a3": {"enc", 1}, "a4": {"enc", 1}}
	for range 5 {
		after := Assign(all, before, work("a", 1, 2, 3, 4), everyone)
		moved := 0
		for id := range after {
			if after[id] != before[id] {
				moved++
			}
		}
		if moved > 1 {
			t.Fatalf("%d workloads moved at once: %v to %v", moved, before, after)
		}
		before = after
	}
	if before["a1"].Worker != 1 || before["a2"].Worker != 1 || before["a3"].Worker != 2 || before["a4"].Worker != 2 {
		t.Errorf("%v: want two each", before)
	}
	all[0].Count = 1
	for id, p := range Assign(all, before, work("a", 1, 2, 3, 4), everyone) {
		if p.Worker != 1 {
			t.Errorf("%s is in %v, and there is one worker", id, p)
		}
	}
}

// TestAWorkerIsIdleOnlyIfThereIsNoWork checks the numbers of workloads in the
// workers of a slice. After a few calls these numbers must differ by at most
// one.
func TestAWorkerIsIdleOnlyIfThereIsNoWork(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		all := []Slice{{Name: "s", CPUs: 1, Count: 1 + rng.IntN(5), Rules: []string{"r"}}}
		var places Places
		var ids []int
		for range 10 {
			ids = nil
			for i := range 20 {
				if rng.IntN(2) == 0 {
					ids = append(ids, i)
				}
			}
			places = Assign(all, places, work("r", ids...), everyone)
		}
		for range 20 {
			places = Assign(all, places, work("r", ids...), everyone)
		}
		load := make([]int, all[0].Count)
		for _, p := range places {
			load[p.Worker-1]++
		}
		if load[busiest(load)]-load[idlest(load)] > 1 || len(places) != len(ids) {
			t.Fatalf("%v workloads in the workers, of %d", load, len(ids))
		}
	}
}

func TestAStatusShowsAllWorkers(t *testing.T) {
	all := []Slice{{Name: "enc", CPUs: 2, Count: 2, Rules: []string{"a"}}}
	st := StatusOf(all, Places{"a2": {"enc", 1}, "a1": {"enc", 1}, "lost": {"gone", 1}}, func(p Place) unit.CPUSet {
		if p.Worker == 1 {
			return unit.CPUSetOf(0, 2)
		}
		return unit.CPUSet{}
	})
	if len(st) != 1 || len(st[0].Workers) != 2 || fmt.Sprint(st[0].Workers[0].Work) != "[a1 a2]" || st[0].Workers[0].CPUs.Len() != 2 || len(st[0].Workers[1].Work) != 0 {
		t.Errorf("%+v", st)
	}
	if p := PlaceOf(st, "a2"); p == nil || p.Worker != 1 || p.Suffix() != ", in worker 1 of slice enc" {
		t.Errorf("a2 is in %v", p)
	}
	if p := PlaceOf(st, "lost"); p.Suffix() != "" {
		t.Errorf("a workload of no slice is in %v", p)
	}
}
