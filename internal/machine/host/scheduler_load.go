package host

import (
	"errors"
	"fmt"
	"syscall"

	"tenon.sh/tenon/internal/kernel/scx"
	"tenon.sh/tenon/internal/model/node"
)

// ErrLoading means that the scheduler is being loaded. The kernel verifies its
// programs first, which takes a second, or many on a slow machine. Its knob is
// empty until then, and the next isolation mechanism holds.
var ErrLoading = errors.New("the scheduler is being loaded: the kernel checks it")

// startLoading loads the wanted scheduler beside the loop. A failure is a
// mechanism failure, as if it had been refused at once.
func (h *Host) startLoading() {
	v, begun := h.isolation.beginLoad()
	if !begun {
		return
	}
	go func() {
		switch loaded, err := h.loadAs(v); {
		case err != nil:
			h.isolation.forgetOrders()
			h.fall(node.RungSchedExt, true, err)
		case loaded:
			h.wake("the scheduler is loaded")
		}
	}()
}

// loadWanted loads the scheduler if it is wanted and not loaded, and reports
// whether it did. If another goroutine is loading it, it does nothing.
func (h *Host) loadWanted() (bool, error) {
	v, begun := h.isolation.beginLoad()
	if !begun {
		return false, nil
	}
	return h.loadAs(v)
}

// beginLoad returns what to load, if anything, and prevents other loads.
func (i *isolation) beginLoad() (v node.Scheduler, begun bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	x := &i.scheduler
	if x.closed || x.loading || x.loaded != nil || !x.want.Loaded {
		return node.Scheduler{}, false
	}
	x.loading = true
	return x.want, true
}

// loadAs loads the scheduler and starts follow. If the wanted scheduler has
// changed meanwhile, it drops the loaded one or changes its parameters; a
// failure is then ignored.
func (h *Host) loadAs(v node.Scheduler) (bool, error) {
	for begun := true; begun; v, begun = h.isolation.beginLoad() {
		s, err := h.load(v)
		want := h.isolation.endLoad(s, v, err)
		switch {
		case err != nil && want.Loaded:
			return false, err
		case err != nil:
			return false, nil
		case want.Loaded:
			go h.follow(s)
			if err := h.change(s, v, want); err != nil {
				h.wake(err.Error())
			}
			h.pushOrders(s)
			return true, nil
		}
		h.drop(s)
	}
	return false, nil
}

func (h *Host) load(v node.Scheduler) (extScheduler, error) {
	t, err := h.topology.Read(h.now())
	if err != nil {
		return nil, fmt.Errorf("load the scheduler: %w", err)
	}
	s, err := h.isolation.ext.load(scx.Options{CgroupVersion: h.tree.VersionOf("cpu"), Topology: placesOf(t), Params: h.params(v)})
	if errors.Is(err, scx.ErrBusy) {
		err = fmt.Errorf("%w: %w", err, syscall.EBUSY)
	}
	return s, err
}

// endLoad stores the loaded scheduler, and returns what is wanted now. An
// unwanted scheduler must still be dropped, and until then no other can be
// loaded.
func (i *isolation) endLoad(s extScheduler, v node.Scheduler, err error) (want node.Scheduler) {
	i.mu.Lock()
	defer i.mu.Unlock()
	x := &i.scheduler
	if want = x.want; x.closed {
		want = node.Scheduler{}
	}
	switch {
	case err != nil:
		x.loading = false
		return want
	case want.Loaded:
		x.loading, x.loaded, x.as = false, s, v
		i.stale = true // the set of strays changes with the scheduler
	}
	i.status.Loads++
	return want
}

// drop takes down a scheduler that was no longer wanted when its load ended.
func (h *Host) drop(s extScheduler) {
	i := &h.isolation
	last := h.lastStatus(s)
	if err := s.Close(); err != nil {
		h.wake(err.Error())
	}
	i.ended(scx.Exit{Kind: scx.ExitUnload}, h.now(), last)
	i.mu.Lock()
	defer i.mu.Unlock()
	i.scheduler.loading = false
}

// unwant records, also for a load in progress, that no scheduler is wanted. It
// returns the loaded scheduler, if any, and whether a load is in progress.
func (i *isolation) unwant() (s extScheduler, loading bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.scheduler.want = node.Scheduler{}
	if i.scheduler.loaded == nil {
		i.scheduler.orders = orders{}
	}
	return i.scheduler.loaded, i.scheduler.loading
}

// change sets the parameters of a loaded scheduler to the wanted ones, if they
// differ.
func (h *Host) change(s extScheduler, from, to node.Scheduler) error {
	if to == from {
		return nil
	}
	if err := s.SetParams(h.params(to)); err != nil {
		return err
	}
	h.isolation.mu.Lock()
	defer h.isolation.mu.Unlock()
	h.isolation.scheduler.as = to
	return nil
}
