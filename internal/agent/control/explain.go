package control

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"tenon.sh/tenon/internal/decide/trials/switchback"
	"tenon.sh/tenon/internal/model/node"
)

// trialsName is the name for the isolation and its trials in tenon explain. If
// a workload or cgroup has this name, that object is explained instead.
const trialsName = "isolation"

// maxInputs is the maximum number of workloads in Explanation.Inputs.
const maxInputs = 20

// Unknown is the error if no workload and no cgroup has the requested name.
type Unknown struct {
	Name string
	// Known lists the names that can be explained: the workloads, and the
	// cgroups that have knobs.
	Known []string
}

func (e *Unknown) Error() string { return fmt.Sprintf("tenond knows no workload or cgroup %q", e.Name) }

// ExplainWorkload explains the object with this name. It may be a workload (its
// ID, or a unique suffix of its ID), a cgroup that contains workloads, the
// isolation (trialsName), or the batch resources (batchNames).
func (l *Ledger) ExplainWorkload(name string) (Explanation, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	name = strings.Trim(name, "/")
	all := l.workloads()
	e := Explanation{At: l.last.Snapshot.At}
	w, found := find(all, name)
	switch {
	case found:
		e.Workload, e.Cgroup = &w, w.Cgroup
		if w.Class == node.BE {
			e.Watermark = watermarkOf(l.last)
		}
		for _, of := range l.last.Snapshot.Workloads {
			if of.ID != w.ID {
				continue
			}
			e.Effects = l.last.Trials.EffectsOn(switchback.NameOf(&of))
			if work := l.last.Reclaim.Work[w.ID]; work != nil {
				e.Reclaim = &Reclaim{of.Usage.Reclaim, *work, l.last.Reclaim.Lacks}
			}
		}
	case l.hasKnobs(node.CgroupPath(name)):
		e.Cgroup = node.CgroupPath(name)
		e.Inputs, e.More = inputs(all, e.Cgroup)
	case name == trialsName:
		selection, trials := l.last.Selection, l.last.Trials
		e.Selection, e.Trials, e.Watermark, e.Knobs = &selection, &trials, watermarkOf(l.last), []Knob{}
		return e, nil
	case isBatch(name):
		b := l.last.Batch
		e.Batch, e.Knobs = &b, []Knob{}
		return e, nil
	default:
		return e, &Unknown{Name: name, Known: l.names()}
	}
	var knobs []node.Knob
	for k := range l.knobs {
		if k.Cgroup == e.Cgroup || found && w.ContentionRoot.Contains(k.Cgroup) && k.Cgroup.Contains(w.Cgroup) {
			knobs = append(knobs, k)
		}
	}
	slices.SortFunc(knobs, func(a, b node.Knob) int {
		return cmp.Or(cmp.Compare(b.Cgroup.Depth(), a.Cgroup.Depth()), a.Compare(b))
	})
	e.Knobs = []Knob{}
	for _, k := range knobs {
		e.Knobs = append(e.Knobs, l.knob(k))
	}
	return e, nil
}

// ExplainKnob explains one knob.
func (l *Ledger) ExplainKnob(k node.Knob) (Explanation, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k.Cgroup = node.CgroupPath(strings.Trim(string(k.Cgroup), "/"))
	all := l.workloads()
	if w, found := find(all, string(k.Cgroup)); found && k.ControlGroup == "" {
		k.Cgroup = w.Cgroup
	}
	_, seen := l.last.Snapshot.Knobs.Now[k]
	_, asked := l.knobs[k]
	isolated := slices.Contains(isolating, k.File) && l.last.Selection.Mechanism != "" && (k.Cgroup == "" || l.hasKnobs(k.Cgroup))
	if !asked && !seen && !isolated {
		if k.ControlGroup == "" && l.hasKnobs(k.Cgroup) {
			return Explanation{}, &Unknown{Name: k.String(), Known: filesOf(k.Cgroup)}
		}
		return Explanation{}, &Unknown{Name: k.Object(), Known: l.names()}
	}
	e := Explanation{At: l.last.Snapshot.At, Cgroup: k.Cgroup, Knobs: []Knob{}}
	if slices.Contains(l.bounds(), k) && (k.File == node.FileCPUMax || k.File == node.FileCPUs) {
		e.Watermark = watermarkOf(l.last)
	}
	if asked || seen {
		e.Knobs = append(e.Knobs, l.knob(k))
	}
	if isolated {
		selection := l.last.Selection
		e.Selection = &selection
	}
	e.Inputs, e.More = inputs(all, k.Cgroup)
	if k.ControlGroup != "" {
		all = slices.DeleteFunc(all, func(w Workload) bool { return w.Class.Control() != k.ControlGroup })
		e.Inputs, e.More = inputs(all, "")
	}
	return e, nil
}

// find returns the workload whose ID is name, or else the only one whose ID ends with "/" + name.
func find(all []Workload, name string) (Workload, bool) {
	var last []Workload
	for _, w := range all {
		if string(w.ID) == name {
			return w, true
		}
		if strings.HasSuffix(string(w.ID), "/"+name) {
			last = append(last, w)
		}
	}
	if len(last) == 1 {
		return last[0], true
	}
	return Workload{}, false
}

// inputs returns the workloads in and below a cgroup, at most maxInputs. more
// is the number of omitted workloads.
func inputs(all []Workload, p node.CgroupPath) (in []Workload, more int) {
	for _, w := range all {
		if p.Contains(w.Cgroup) {
			in = append(in, w)
		}
	}
	slices.SortFunc(in, busiestFirst)
	if len(in) > maxInputs {
		in, more = in[:maxInputs], len(in)-maxInputs
	}
	return in, more
}

func (l *Ledger) hasKnobs(p node.CgroupPath) bool {
	for k := range l.knobs {
		if k.Cgroup == p {
			return true
		}
	}
	return false
}

// names lists the names that can be explained.
func (l *Ledger) names() []string {
	known := map[string]bool{}
	for _, w := range l.last.Snapshot.Workloads {
		known[string(w.ID)] = true
	}
	for k := range l.knobs {
		known[k.Object()] = true
	}
	return slices.Sorted(maps.Keys(known))
}

func filesOf(p node.CgroupPath) []string {
	var all []string
	for _, f := range node.Files {
		all = append(all, node.Knob{Cgroup: p, File: f}.String())
	}
	return all
}
