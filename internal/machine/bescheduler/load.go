package bescheduler

import (
	"errors"
	"fmt"
	"syscall"

	"tenon.sh/tenon/internal/kernel/scx"
	"tenon.sh/tenon/internal/model/node"
)

// ErrLoading means that the kernel still verifies the scheduler's programs.
// This takes a second, or many seconds on a slow machine. Until the load ends,
// snapshots show no scheduler, and Tenon uses the next isolation mechanism.
var ErrLoading = errors.New("the scheduler is being loaded: the kernel checks it")

// startLoading loads the wanted scheduler in a goroutine of its own. If this
// fails, it reports the failure through Events.Failed.
func (x *Scheduler) startLoading() {
	v, begun := x.beginLoad()
	if !begun {
		return
	}
	go func() {
		switch loaded, err := x.loadAs(v); {
		case err != nil:
			x.forgetOrders()
			x.on.Failed(true, err)
		case loaded:
			x.on.Wake("the scheduler is loaded")
		}
	}()
}

// loadWanted loads the wanted scheduler, unless one is loaded or being loaded
// already. It reports whether it loaded one.
func (x *Scheduler) loadWanted() (bool, error) {
	v, begun := x.beginLoad()
	if !begun {
		return false, nil
	}
	return x.loadAs(v)
}

// beginLoad returns the parameters of the scheduler to load, or false if there
// is nothing to load. Until endLoad, no other goroutine can load one.
func (x *Scheduler) beginLoad() (v node.Scheduler, begun bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.closed || x.loading || x.loaded != nil || !x.want.Loaded {
		return node.Scheduler{}, false
	}
	x.loading = true
	return x.want, true
}

// loadAs loads the scheduler, and starts follow. If Write was called during the
// load, loadAs then changes the parameters or unloads the scheduler. The errors
// of this second action go only to Events.Wake.
func (x *Scheduler) loadAs(v node.Scheduler) (bool, error) {
	for begun := true; begun; v, begun = x.beginLoad() {
		s, err := x.load(v)
		want := x.endLoad(s, v, err)
		switch {
		case err != nil && want.Loaded:
			return false, err
		case err != nil:
			return false, nil
		case want.Loaded:
			x.on.Loaded()
			go x.follow(s)
			if err := x.change(s, v, want); err != nil {
				x.on.Wake(err.Error())
			}
			x.pushOrders(s)
			return true, nil
		}
		x.drop(s)
	}
	return false, nil
}

func (x *Scheduler) load(v node.Scheduler) (Program, error) {
	t, err := x.topology.Read(x.now())
	if err != nil {
		return nil, fmt.Errorf("load the scheduler: %w", err)
	}
	s, err := x.kernel.Load(scx.Options{CgroupVersion: x.tree.VersionOf("cpu"), Topology: cpusOf(t), Params: x.params(v)})
	if errors.Is(err, scx.ErrBusy) {
		err = fmt.Errorf("%w: %w", err, syscall.EBUSY)
	}
	return s, err
}

// endLoad stores the loaded scheduler, and returns the scheduler that is wanted
// now. If none is wanted any more, the caller must unload the loaded one, and
// until then no other load can begin.
func (x *Scheduler) endLoad(s Program, v node.Scheduler, err error) (want node.Scheduler) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if want = x.want; x.closed {
		want = node.Scheduler{}
	}
	switch {
	case err != nil:
		x.loading = false
		return want
	case want.Loaded:
		x.loading, x.loaded, x.as = false, s, v
	}
	x.status.Loads++
	return want
}

// drop unloads a scheduler that became unwanted while it was being loaded.
func (x *Scheduler) drop(s Program) {
	last := x.lastStatus(s)
	if err := s.Close(); err != nil {
		x.on.Wake(err.Error())
	}
	x.ended(scx.Exit{Kind: scx.ExitUnload}, x.now(), last)
	x.mu.Lock()
	defer x.mu.Unlock()
	x.loading = false
}

// Unwant records that no scheduler is wanted. A load that has begun continues, and
// the scheduler is unloaded afterwards. Meanwhile, snapshots show no scheduler.
func (x *Scheduler) Unwant() { x.unwant() }

// unwant does the same as Unwant. It returns the loaded scheduler, or nil, and
// reports whether a load is in progress.
func (x *Scheduler) unwant() (s Program, loading bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.want = node.Scheduler{}
	if x.loaded == nil {
		x.orders = orders{}
	}
	return x.loaded, x.loading
}

// change sets the parameters of a loaded scheduler to the wanted ones, if they
// differ.
func (x *Scheduler) change(s Program, from, to node.Scheduler) error {
	if to == from {
		return nil
	}
	if err := s.SetParams(x.params(to)); err != nil {
		return err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.as = to
	return nil
}
