// Package worker divides the best-effort (BE) work of rules among virtual
// workers of one machine. A slice is a number of workers that have the same
// number of CPUs. The package decides in which worker each workload is. Package
// seat decides which CPUs a worker has.
package worker

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// A Slice is a named set of equal virtual workers.
type Slice struct {
	Name  string `json:"name"`
	CPUs  int    `json:"cpus"`  // of each worker
	Count int    `json:"count"` // of workers
	// Rules are the names of the rules whose work is in the slice.
	Rules []string `json:"rules,omitempty"`
	// If an operator has changed CPUs while the agent runs, Configured is the
	// number of CPUs in the configuration. Otherwise it is 0.
	Configured int `json:"configured_cpus,omitempty"`
}

// A Place is a worker of a slice. Workers are numbered from 1.
type Place struct {
	Slice  string `json:"slice"`
	Worker int    `json:"worker"`
}

// String names the worker in reasons.
func (p Place) String() string { return "worker " + strconv.Itoa(p.Worker) + " of slice " + p.Slice }

// Suffix returns ", in worker 1 of slice a" for a reason, or "" for nil.
func (p *Place) Suffix() string {
	if p == nil {
		return ""
	}
	return ", in " + p.String()
}

// Compare orders places by slice and worker.
func (p Place) Compare(o Place) int {
	return cmp.Or(strings.Compare(p.Slice, o.Slice), cmp.Compare(p.Worker, o.Worker))
}

// Places has the worker of each workload that is in a slice.
type Places map[node.WorkloadID]Place

// Assign returns the worker of each BE workload of a slice. A workload keeps
// its worker while the slice has a worker of this number. A new workload goes
// to the worker that has the fewest workloads. If a worker has at least two
// workloads more than another one of its slice, because work has ended, one
// workload moves in each call. The function takesPart says whether a workload
// gets a worker.
func Assign(all []Slice, before Places, work []node.Workload, takesPart func(node.WorkloadID) bool) Places {
	if len(all) == 0 {
		return nil
	}
	of := map[string]int{} // the index of the slice, by the name of the rule
	for i, s := range all {
		for _, r := range s.Rules {
			of[r] = i
		}
	}
	places := make(Places, len(before))
	load := make([][]int, len(all))
	for i, s := range all {
		load[i] = make([]int, max(s.Count, 1))
	}
	type comer struct {
		id node.WorkloadID
		to int
	}
	var fresh []comer
	for at := range work {
		w := &work[at]
		i, named := of[w.Rule]
		if !named || w.Rule == "" || w.Class != node.BE || !takesPart(w.ID) {
			continue
		}
		if p, had := before[w.ID]; had && p.Slice == all[i].Name && p.Worker >= 1 && p.Worker <= len(load[i]) {
			places[w.ID] = p
			load[i][p.Worker-1]++
		} else {
			fresh = append(fresh, comer{w.ID, i})
		}
	}
	slices.SortFunc(fresh, func(a, b comer) int { return strings.Compare(string(a.id), string(b.id)) })
	for _, c := range fresh {
		least := idlest(load[c.to])
		places[c.id] = Place{all[c.to].Name, least + 1}
		load[c.to][least]++
	}
	for i, s := range all {
		places.balance(s.Name, load[i])
	}
	return places
}

// balance moves one workload from the busiest worker of a slice to the idlest.
func (p Places) balance(name string, load []int) {
	from, to := busiest(load), idlest(load)
	if load[from]-load[to] < 2 {
		return
	}
	var last node.WorkloadID // a fixed choice, so that equal snapshots decide equally
	for id, at := range p {
		if at == (Place{name, from + 1}) && id > last {
			last = id
		}
	}
	p[last] = Place{name, to + 1}
}

func idlest(load []int) int {
	return slices.Index(load, slices.Min(load))
}

func busiest(load []int) int {
	return slices.Index(load, slices.Max(load))
}

// A Status is a slice with its workers, for reports.
type Status struct {
	Slice
	Workers []Worker `json:"workers"`
}

// A Worker is one virtual worker. CPUs is empty if no work is in the worker, or
// if all work shares the CPUs.
type Worker struct {
	Number int               `json:"worker"`
	CPUs   unit.CPUSet       `json:"cpu_set"`
	Work   []node.WorkloadID `json:"workloads,omitempty"`
}

// StatusOf returns the slices with their workers.
func StatusOf(all []Slice, places Places, cpus func(Place) unit.CPUSet) []Status {
	status := make([]Status, 0, len(all))
	for _, s := range all {
		st := Status{Slice: s}
		for i := range max(s.Count, 1) {
			st.Workers = append(st.Workers, Worker{Number: i + 1, CPUs: cpus(Place{s.Name, i + 1})})
		}
		status = append(status, st)
	}
	for id, p := range places {
		i := slices.IndexFunc(status, func(s Status) bool { return s.Name == p.Slice })
		if i >= 0 && p.Worker >= 1 && p.Worker <= len(status[i].Workers) {
			w := &status[i].Workers[p.Worker-1]
			w.Work = append(w.Work, id)
		}
	}
	for _, s := range status {
		for i := range s.Workers {
			slices.Sort(s.Workers[i].Work)
		}
	}
	return status
}

// PlaceOf returns the worker of a workload, or nil.
func PlaceOf(all []Status, id node.WorkloadID) *Place {
	for _, s := range all {
		for _, w := range s.Workers {
			if slices.Contains(w.Work, id) {
				return &Place{s.Name, w.Number}
			}
		}
	}
	return nil
}
