package isolation

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"tenon.sh/tenon/internal/kernel/proc"
	"tenon.sh/tenon/internal/machine/journal"
	"tenon.sh/tenon/internal/machine/reread"
	"tenon.sh/tenon/internal/machine/subtree"
	"tenon.sh/tenon/internal/model/node"
)

// mayHave reports whether threads may have the best-effort attribute of a
// journaled knob. They may have it until its release has succeeded.
func mayHave(t journal.Touch) bool {
	return t.Written != node.Value(node.ThreadsNormal) || t.Pending != nil && t.Pending != node.Value(node.ThreadsNormal)
}

// LastReleased is called after each release of a knob. If it was the last
// journaled knob of a thread attribute, LastReleased also removes the attribute
// from threads that have left their cgroups. For other knobs it does nothing.
func (i *Isolation) LastReleased(k node.Knob) error {
	if !k.File.OfThreads() {
		return nil
	}
	s, err := i.journal.State()
	if err != nil {
		return err
	}
	for other := range s.Touches {
		if other.File == k.File && other != k {
			return nil
		}
	}
	if err := i.removeEverywhere(k.File); err != nil {
		return err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.resident {
		i.recheck[k.File] = i.now().Add(reread.Unchanged)
	} else {
		i.attributes[k.File].forget()
	}
	return nil
}

// recheckReleased removes attributes once more, some time after LastReleased. A
// thread that was created while LastReleased listed the threads has its
// parent's attributes, and may be missing in the list.
func (i *Isolation) recheckReleased(at time.Time) {
	i.mu.Lock()
	due := maps.Clone(i.recheck)
	for k := range i.converted {
		delete(i.recheck, k.File) // the attribute is in use again
	}
	maps.DeleteFunc(due, func(f node.File, t time.Time) bool {
		_, left := i.recheck[f]
		return !left || at.Before(t)
	})
	i.mu.Unlock()
	for f := range due {
		if err := i.removeEverywhere(f); err != nil {
			i.wake(err.Error())
		}
		i.mu.Lock()
		delete(i.recheck, f)
		i.attributes[f].forget()
		i.mu.Unlock()
	}
}

// removeEverywhere removes a best-effort attribute from all threads of the
// machine. It must look at all of them: a thread that was moved out of a
// best-effort cgroup keeps the attribute, even in a cgroup that Tenon does not
// manage. Because that costs much, it runs only after the last release.
func (i *Isolation) removeEverywhere(f node.File) error {
	err := i.attributes[f].sweep(func() ([]int, error) { return allThreads(i.fs) })
	if err != nil {
		return fmt.Errorf("look for threads that have left best-effort groups: %w", err)
	}
	return nil
}

// allThreads lists all threads of the machine except kernel threads, which
// never have best-effort attributes.
func allThreads(fs proc.FS) ([]int, error) {
	pids, err := fs.PIDs()
	if err != nil {
		return nil, err
	}
	var all []int
	for _, pid := range pids {
		tids, _ := fs.Threads(pid) //nolint:errcheck // empty: the process has ended
		all = append(all, tids...)
	}
	return all, nil
}

// unconvert removes the attribute of a knob from the threads of its cgroup.
func (i *Isolation) unconvert(k node.Knob) error {
	i.mu.Lock()
	given := i.converted[k]
	delete(i.converted, k) // so that convertStray sets it on no thread meanwhile
	i.mu.Unlock()
	err := i.takeBack(k)
	i.mu.Lock()
	defer i.mu.Unlock()
	if err != nil {
		if given {
			i.converted[k] = true // some threads still have the attribute
		}
		return err
	}
	delete(i.leftAlone, k)
	if !slices.ContainsFunc(slices.Collect(maps.Keys(i.converted)), func(g node.Knob) bool { return g.File == k.File }) {
		i.attributes[k.File].unused()
	}
	return nil
}

// takeBack removes the attribute of a knob from all threads in and below the
// knob's cgroup.
func (i *Isolation) takeBack(k node.Knob) error {
	return i.attributes[k.File].takeBack(func() ([]int, error) { return subtree.Threads(i.tree, k.Cgroup) })
}
