package isolation

import (
	"errors"

	"tenon.sh/tenon/internal/kernel/task"
	"tenon.sh/tenon/internal/model/node"
)

// An attribute is the property of threads that a knob sets. A mechanism with
// another one needs an entry in attributesOf, and a row in node.MechanismTable.
type attribute interface {
	count(tids []int) (tally, error)
	// give sets the attribute, and returns how many threads it changed.
	give(list task.List) (int, error)
	// takeBack removes the attribute from best-effort threads.
	takeBack(list task.List) error
	// strip removes the attribute from threads of other classes that have it from
	// Tenon, and returns how many threads it changed.
	strip(list task.List) (int, error)
	// sweep does the same with all threads of the machine.
	sweep(list task.List) error
	// unused is called after the last knob of the attribute is released, and
	// forget when no thread can have the attribute any more.
	unused()
	forget()
}

func attributesOf(i *Isolation) map[node.File]attribute {
	return map[node.File]attribute{
		node.FilePolicy: extPolicy{i},
		node.FileCookie: i.cookies,
		node.FileSlice:  newLongSlices(i.now),
	}
}

// extPolicy is the scheduling policy of the threads of the BE scheduler.
type extPolicy struct{ i *Isolation }

func (p extPolicy) count(tids []int) (tally, error) {
	all, err := p.i.policies.Count(tids)
	return tally{all.Ext, all.Fair, all.RealTime}, err
}

func (p extPolicy) give(list task.List) (int, error) {
	return p.i.policies.Extend(list, func(tid int) bool {
		p.i.mu.Lock()
		defer p.i.mu.Unlock()
		_, is := p.i.demoted[tid]
		return is
	})
}

func (p extPolicy) takeBack(list task.List) error {
	_, err := p.i.policies.Shorten(list)
	return err
}

// strip leaves threads alone while another component has loaded a sched_ext
// scheduler, because they may be threads of that component. So does sweep.
func (p extPolicy) strip(list task.List) (int, error) {
	loaded := p.i.scheduler.Loaded()
	p.i.mu.Lock()
	theirs := !loaded && p.i.others.name != ""
	p.i.mu.Unlock()
	if theirs {
		return 0, nil
	}
	return p.i.policies.Shorten(list)
}

func (p extPolicy) sweep(list task.List) error {
	if !p.i.scheduler.Loaded() && foreignScheduler(p.i.fs.Sys) != "" {
		return nil
	}
	return p.takeBack(list)
}

func (extPolicy) unused() {}
func (extPolicy) forget() {}

// strip removes those best-effort attributes from threads for which the
// function ours returns true. It returns how many changes it made.
func strip(all map[node.File]attribute, list task.List, ours func(node.File) bool) (n int, err error) {
	var errs []error
	for _, f := range node.FilesOf(node.CategoryThreads) {
		if ours(f) {
			changed, err := all[f].strip(list)
			n, errs = n+changed, append(errs, err)
		}
	}
	return n, errors.Join(errs...)
}
