package host

import (
	"errors"
	"fmt"
	"syscall"

	"tenon.sh/tenon/internal/kernel/scx"
	"tenon.sh/tenon/internal/model/node"
)

// ErrLoading means that the scheduler is being loaded: the kernel checks its
// programs first, which takes a second, and many where the machine is slow. Its
// knob shows none until then. What keeps best-effort work out of the way below
// it holds meanwhile.
var ErrLoading = errors.New("the scheduler is being loaded: the kernel checks it")

// startLoading has the scheduler loaded that is wanted, while the loop turns on.
// A failure is a fall, as if it had been refused at once.
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
// whether it has. If somebody else does so at this moment, it leaves that to them.
func (h *Host) loadWanted() (bool, error) {
	v, begun := h.isolation.beginLoad()
	if !begun {
		return false, nil
	}
	return h.loadAs(v)
}

// beginLoad says what to load, if anything, and keeps others from doing so.
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

// loadAs loads the scheduler and has it followed. If minds have changed meanwhile
// it is dropped, or made to work as it is wanted now; a failure is nobody's
// concern then.
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
	t, err := h.topology.read(h.fs, h.now())
	if err != nil {
		return nil, fmt.Errorf("load the scheduler: %w", err)
	}
	s, err := h.isolation.ext.load(scx.Options{CgroupVersion: h.tree.VersionOf("cpu"), Topology: placesOf(t), Params: h.params(v)})
	if errors.Is(err, scx.ErrBusy) {
		err = fmt.Errorf("%w: %w", err, syscall.EBUSY)
	}
	return s, err
}

// endLoad takes over what was loaded, and says what is wanted now. What is not
// wanted is still to be dropped, and until then no other can be loaded.
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
		i.stale = true // who became a stray without it is one no more, and the other way round
	}
	i.status.Loads++
	return want
}

// drop takes down what nobody wanted any more when it was loaded.
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

// unwant says that no scheduler is wanted, also to those who load one at this
// moment, and returns the one that is loaded, if any, or whether one will be.
func (i *isolation) unwant() (s extScheduler, loading bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.scheduler.want = node.Scheduler{}
	if i.scheduler.loaded == nil {
		i.scheduler.orders = orders{}
	}
	return i.scheduler.loaded, i.scheduler.loading
}

// change makes a loaded scheduler work as it is wanted now, if that is another
// way.
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
