package isolation

import (
	"errors"
	"maps"
	"slices"
	"sync"

	"tenon.sh/tenon/internal/kernel/task"
)

// A Cookie is a core-scheduling cookie for best-effort threads. task.Cookies implements it.
type Cookie interface {
	ID() uint64
	Share(list task.List, spare func(tid int) bool) (int, error)
	Close()
}

// Cores gives access to core scheduling. Package task implements it.
type Cores interface {
	NewCookie(from ...int) (Cookie, error)
	CookieOf(tid int) (uint64, error)
	Clear(task.List) (int, error)
}

type kernelCores struct{}

func (kernelCores) NewCookie(from ...int) (Cookie, error) {
	c, err := task.NewCookies(from...)
	if err != nil {
		return nil, err // not a typed nil pointer
	}
	return c, nil
}

func (kernelCores) CookieOf(tid int) (uint64, error) { return task.CoreCookie(tid) }

func (kernelCores) Clear(l task.List) (int, error) { return task.ClearCookies(l) }

// Policies reads and sets the scheduling policies of threads. Package task
// implements it.
type Policies interface {
	Extend(list task.List, spare func(tid int) bool) (int, error)
	Shorten(task.List) (int, error)
	Count(tids []int) (task.Policies, error)
}

type kernelPolicies struct{}

func (kernelPolicies) Extend(l task.List, spare func(int) bool) (int, error) {
	return task.Extend(l, spare)
}

func (kernelPolicies) Shorten(l task.List) (int, error) { return task.Shorten(l) }

func (kernelPolicies) Count(tids []int) (task.Policies, error) { return task.CountPolicies(tids) }

// cookies sets the core-scheduling cookie of best-effort threads, and recognises
// cookies that other components set. Its methods are safe for concurrent use.
type cookies struct {
	Cores
	// earlier lists threads that may have the cookie of an earlier agent.
	earlier func() []int

	mu     sync.Mutex
	own    Cookie          // Tenon's present cookie; nil: none
	issued map[uint64]bool // all cookies of Tenon that threads may still have
}

func newCookies(c Cores, earlier func() []int) *cookies {
	if c == nil {
		c = kernelCores{}
	}
	return &cookies{Cores: c, earlier: earlier, issued: map[uint64]bool{}}
}

// current returns Tenon's cookie, or nil if there is none.
func (c *cookies) current() Cookie {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.own
}

// id returns the number of Tenon's cookie, or 0 if there is none.
func (c *cookies) id() uint64 {
	if own := c.current(); own != nil {
		return own.ID()
	}
	return 0
}

// get returns Tenon's cookie, or makes one if there is none. If a thread has the
// cookie of an earlier agent, get uses that cookie.
func (c *cookies) get() (Cookie, error) {
	if own := c.current(); own != nil {
		return own, nil
	}
	threads := c.earlier()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.own != nil {
		return c.own, nil
	}
	own, err := c.NewCookie(threads...)
	if err == nil {
		c.own = own
	}
	return own, err
}

// unused gives up Tenon's cookie. Without cookies, the kernel turns core
// scheduling and its cost off.
func (c *cookies) unused() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.own != nil {
		c.own.Close()
		c.own = nil
	}
}

// forget clears the list of Tenon's former cookies, because no thread has them
// any more.
func (c *cookies) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.issued)
}

// isForeign reports whether a cookie belongs to another component. It returns
// false while Tenon has no cookie to compare with.
func (c *cookies) isForeign(id uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	known := c.own != nil || len(c.issued) > 0
	return id != 0 && known && (c.own == nil || id != c.own.ID()) && !c.issued[id]
}

// hasForeign reports whether a thread has a cookie of another component.
func (c *cookies) hasForeign(tid int) bool {
	id, err := c.CookieOf(tid)
	return err == nil && c.isForeign(id)
}

// note records the cookies of threads as Tenon's. Call it before the cookies
// are cleared. Cookies in a best-effort cgroup that this process did not set
// come from an earlier agent.
func (c *cookies) note(list task.List) {
	tids, _ := list() //nolint:errcheck // if this fails, clearing fails too and reports it
	ids := map[uint64]bool{}
	for _, tid := range tids {
		if id, err := c.CookieOf(tid); err == nil && id != 0 && !c.isForeign(id) {
			ids[id] = true
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.own != nil {
		ids[c.own.ID()] = true
	}
	maps.Copy(c.issued, ids)
}

// count counts threads by Tenon's cookie. It omits threads with the cookie of
// another component, which stays.
func (c *cookies) count(tids []int) (n tally, err error) {
	own := c.id()
	for _, tid := range tids {
		id, err := c.CookieOf(tid)
		switch {
		case errors.Is(err, task.ErrGone):
		case err != nil:
			return tally{}, err
		case c.isForeign(id):
		case id != 0 && (own == 0 || id == own):
			n.be++
		default:
			n.others++
		}
	}
	return n, nil
}

func (c *cookies) give(list task.List) (int, error) {
	own, err := c.get()
	if err != nil {
		return 0, err
	}
	return own.Share(list, c.hasForeign)
}

func (c *cookies) takeBack(list task.List) error {
	c.note(list)
	_, err := c.Clear(func() ([]int, error) {
		tids, err := list()
		return slices.DeleteFunc(tids, c.hasForeign), err
	})
	return err
}

// sweep clears the cookies of threads. It clears only those that note has
// recorded as Tenon's.
func (c *cookies) sweep(list task.List) error {
	c.mu.Lock()
	issued := maps.Clone(c.issued)
	c.mu.Unlock()
	if len(issued) == 0 {
		return nil
	}
	_, err := c.Clear(func() ([]int, error) {
		tids, err := list()
		return slices.DeleteFunc(tids, func(tid int) bool {
			id, err := c.CookieOf(tid)
			return err != nil || !issued[id]
		}), err
	})
	return err
}

// strip removes Tenon's present and former cookies from threads. It returns
// the number of these threads.
func (c *cookies) strip(list task.List) (int, error) {
	c.mu.Lock()
	ours := maps.Clone(c.issued)
	if c.own != nil {
		ours[c.own.ID()] = true
	}
	c.mu.Unlock()
	if len(ours) == 0 {
		return 0, nil
	}
	tids, missed := list()
	tids = slices.DeleteFunc(tids, func(tid int) bool {
		has, err := c.CookieOf(tid)
		return err != nil || !ours[has]
	})
	if len(tids) == 0 {
		return 0, missed
	}
	n, err := c.Clear(task.Fixed(tids...))
	return n, errors.Join(err, missed)
}
