package pull

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"tenon.sh/tenon/internal/cluster/past"
	"tenon.sh/tenon/internal/cluster/promapi"
	"tenon.sh/tenon/internal/decide/prospect"
)

const day = 24 * 3600 // seconds

// dateOf returns a day since 1970 as 2026-11-30.
func dateOf(d int64) string { return time.Unix(d*day, 0).UTC().Format(time.DateOnly) }

// A table gathers one part.
type table struct {
	window past.Window
	from   int64 // the first second of the day
	nodes  []past.NodeDay
	byName map[string]int
	odd    map[moment]bool
}

// A moment is a step of a node.
type moment struct{ node, step int64 }

func newTable(w past.Window, of int64, machines []past.Machine) *table {
	t := &table{window: w, from: of * day, nodes: make([]past.NodeDay, len(machines)), byName: map[string]int{}, odd: map[moment]bool{}}
	for i, m := range machines {
		t.nodes[i] = past.NodeDay{Name: m.Name, Columns: map[past.Column][]int64{}}
		t.byName[m.Name] = i
	}
	return t
}

// span returns the ends of the steps of the day: a rate is about the time before it.
func (t *table) span() promapi.Span {
	step := t.window.Step * 60
	return promapi.Span{First: t.from + step, Last: t.from + day, Every: step}
}

// stepAt returns the step that ends at a time.
func (t *table) stepAt(at int64) (int64, error) {
	step := t.window.Step * 60
	i := (at-t.from)/step - 1
	if (at-t.from)%step != 0 || i < 0 || i >= t.window.Steps() {
		return 0, fmt.Errorf("the server answers with a value of %s, for which it was not asked", time.Unix(at, 0).UTC().Format(time.RFC3339))
	}
	return i, nil
}

// add adds an answer to the column of a query. Nodes that were not asked for are other
// ones with the same address.
func (t *table) add(q past.Query, lines []promapi.Line) error {
	for _, l := range lines {
		i, has := t.byName[l.Labels[q.Label]]
		if !has {
			continue
		}
		column := t.nodes[i].Columns[q.Column]
		if column == nil {
			column = slices.Repeat([]int64{prospect.Absent}, int(t.window.Steps()))
			t.nodes[i].Columns[q.Column] = column
		}
		for k, at := range l.At {
			step, err := t.stepAt(at)
			if err != nil {
				return err
			}
			if l.Values[k] < 0 {
				t.odd[moment{int64(i), step}] = true
				continue
			}
			column[step] = max(column[step], q.Column.Integer(l.Values[k]))
		}
		for _, at := range l.Odd {
			step, err := t.stepAt(at)
			if err != nil {
				return err
			}
			t.odd[moment{int64(i), step}] = true
		}
	}
	return nil
}

// forget drops all values of a step that has one below 0, or one that is no number. What
// it stands for is not known, and a missing value of some columns means that there was
// no use.
func (t *table) forget() {
	for at := range t.odd {
		for _, column := range t.nodes[at.node].Columns {
			column[at.step] = prospect.Absent
		}
	}
}

// A place is a pod on a node of a table. A pod with a fixed name may move.
type place struct {
	node int
	past.Pod
}

// A delay is in which steps something was held back, and for how long.
type delay struct {
	steps map[int64]bool
	lost  int64 // in milliseconds
}

func (d *delay) add(o *delay) {
	maps.Copy(d.steps, o.steps)
	d.lost += o.lost
}

// delays are by pod, or by service, of a node.
type delays[K comparable] map[K]*delay

func (all delays[K]) of(k K) *delay {
	if all[k] == nil {
		all[k] = &delay{steps: map[int64]bool{}}
	}
	return all[k]
}

// held reads which services their own CPU limits held back.
func (p *puller) held(ctx context.Context, f *folder, t *table, machines []past.Machine) error {
	pods := delays[place]{}
	step := t.window.Step * 60
	ask := func(what string, text func(share, lost string) string, use func(d *delay, step int64, v float64)) error {
		q := question{what: fmt.Sprintf("%s of %d nodes on %s", what, len(machines), dateOf(t.from/day)), span: t.span(), text: func(some []past.Machine) string {
			return text(f.Sources.HeldQueries(some, step))
		}}
		if q.text(machines) == "" {
			return nil
		}
		return p.each(ctx, q, machines, func(lines []promapi.Line) error {
			for _, l := range lines {
				i, has := t.byName[l.Labels[f.Sources.Label]]
				if !has {
					continue
				}
				pod := place{i, past.Pod{Namespace: l.Labels["namespace"], Name: l.Labels["pod"]}}
				for k, at := range l.At {
					step, err := t.stepAt(at)
					if err != nil {
						return err
					}
					if t.nodes[i].TellsBatch(f.Sources, step) {
						use(pods.of(pod), step, max(l.Values[k], 0))
					}
				}
			}
			return nil
		})
	}
	err := ask("the throttled periods", func(share, _ string) string { return share }, func(d *delay, i int64, _ float64) { d.steps[i] = true })
	if err != nil || len(pods) == 0 {
		return err
	}
	err = ask("the throttled time", func(_, lost string) string { return lost }, func(d *delay, _ int64, v float64) {
		d.lost += int64(math.Round(v * float64(step) * 1000))
	})
	if err != nil {
		return err
	}
	owners, err := p.owners(ctx, f, t.from/day, slices.Collect(maps.Keys(pods)))
	if err != nil {
		return err
	}
	services := make([]delays[string], len(t.nodes))
	for at, d := range pods {
		if services[at.node] == nil {
			services[at.node] = delays[string]{}
		}
		service := owners[at.Pod]
		if service == "" {
			service = past.ServiceOf(at.Pod, "", "")
		}
		services[at.node].of(service).add(d)
	}
	for i, all := range services {
		for _, service := range slices.Sorted(maps.Keys(all)) {
			d := all[service]
			t.nodes[i].Held = append(t.nodes[i].Held, past.Held{Service: service, Minutes: int64(len(d.steps)) * t.window.Step, LostMS: d.lost})
		}
	}
	return nil
}

// podsAtOnce is the number of pods whose owners are asked for at once.
const podsAtOnce = 100

// owners returns the services of pods.
func (p *puller) owners(ctx context.Context, f *folder, of int64, places []place) (map[past.Pod]string, error) {
	all := map[past.Pod]string{}
	if !f.Sources.Owners {
		return all, nil
	}
	pods := make([]past.Pod, len(places))
	for i, at := range places {
		pods[i] = at.Pod
	}
	slices.SortFunc(pods, func(a, b past.Pod) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	for some := range slices.Chunk(slices.Compact(pods), podsAtOnce) {
		end := (of + 1) * day
		lines, err := p.ask(ctx, fmt.Sprintf("the owners of %d pods on %s", len(some), dateOf(of)), f.Sources.OwnerQuery(some, day), promapi.Span{First: end, Last: end})
		if err != nil {
			return nil, err
		}
		for _, l := range lines {
			pod := past.Pod{Namespace: l.Labels["namespace"], Name: l.Labels["pod"]}
			// Of several owners on one day, the first by name counts.
			if s := past.ServiceOf(pod, l.Labels["owner_kind"], l.Labels["owner_name"]); all[pod] == "" || s < all[pod] {
				all[pod] = s
			}
		}
	}
	return all, nil
}
