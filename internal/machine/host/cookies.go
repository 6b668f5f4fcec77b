package host

import "tenon.sh/tenon/internal/kernel/task"

// A coreCookie is the cookie of best-effort threads: task.Cookies.
type coreCookie interface {
	ID() uint64
	Share(list task.List, spare func(tid int) bool) (int, error)
	Close()
}

// coreMeans is the access to core scheduling: package task.
type coreMeans interface {
	newCookie(from ...int) (coreCookie, error)
	cookieOf(tid int) (uint64, error)
	clear(task.List) (int, error)
}

type kernelCore struct{}

func (kernelCore) newCookie(from ...int) (coreCookie, error) {
	c, err := task.NewCookies(from...)
	if err != nil {
		return nil, err // not a typed nil pointer
	}
	return c, nil
}

func (kernelCore) cookieOf(tid int) (uint64, error) { return task.CoreCookie(tid) }

func (kernelCore) clear(l task.List) (int, error) { return task.ClearCookies(l) }
