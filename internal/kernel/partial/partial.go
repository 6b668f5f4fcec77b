// Package partial says which cgroups a walk has missed, and which fields of a file
// a reader. The result of such a walk or reader has everything else.
package partial

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// A Miss is a cgroup that a walk could not read. The walk has not seen the
// cgroups below it, either.
type Miss struct {
	Path string
	Err  error
}

// An Error means that a walk has missed some cgroups, and that its result
// has everything else. A user can make a cgroup that no process can read by its
// path: the kernel takes paths of less than 4 KiB (PATH_MAX).
type Error struct {
	// Misses holds the missed cgroups, at most maxMisses of them, and More is the
	// number of the others.
	Misses []Miss
	More   int
}

const (
	maxMisses   = 64
	namedMisses = 3 // the message of an Error names so many
)

// Error names the first misses with their causes.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("cannot read the cgroup ")
	for i, m := range e.Misses[:min(len(e.Misses), namedMisses)] {
		if i > 0 {
			b.WriteString(", and the cgroup ")
		}
		fmt.Fprintf(&b, "%s and those below it: %v", Shown(m.Path), m.Err)
	}
	if more := len(e.Misses) + e.More - namedMisses; more > 0 {
		fmt.Fprintf(&b, ", and %d more", more)
	}
	return b.String()
}

// Add adds a cgroup to the misses, unless it is among them.
func (e *Error) Add(path string, err error) {
	switch {
	case slices.ContainsFunc(e.Misses, func(m Miss) bool { return m.Path == path }):
	case len(e.Misses) < maxMisses:
		e.Misses = append(e.Misses, Miss{path, bareCause(err)})
	default:
		e.More++
	}
}

// Join adds all misses of another walk.
func (e *Error) Join(other *Error) {
	if other == nil {
		return
	}
	for _, m := range other.Misses {
		e.Add(m.Path, m.Err)
	}
	e.More += other.More
}

// OrNil returns e, or nil if nothing was missed.
func (e *Error) OrNil() error {
	if e == nil || len(e.Misses) == 0 {
		return nil
	}
	return e
}

// MayHide reports whether a cgroup that the walk has not found may exist all the
// same, below one that the walk has missed.
func (e *Error) MayHide(path string) bool {
	if e == nil {
		return false
	}
	return e.More > 0 || slices.ContainsFunc(e.Misses, func(m Miss) bool {
		return m.Path == "" || m.Path == path || strings.HasPrefix(path, m.Path+"/")
	})
}

// Is reports whether err says only that walks have missed some cgroups.
func Is(err error) bool {
	missed, rest := Split(err)
	return missed != nil && rest == nil
}

// Split returns what walks have missed, and the rest of an error. Both may
// be nil.
func Split(err error) (missed *Error, rest error) {
	if err == nil {
		return nil, nil
	}
	if several, joined := err.(interface{ Unwrap() []error }); joined {
		var errs []error
		for _, e := range several.Unwrap() {
			more, other := Split(e)
			if more != nil {
				if missed == nil {
					missed = &Error{}
				}
				missed.Join(more)
			}
			errs = append(errs, other)
		}
		if missed == nil {
			return nil, err
		}
		return missed, errors.Join(errs...)
	}
	if errors.As(err, &missed) {
		return missed, nil
	}
	return nil, err
}

// bareCause returns the innermost error, without the path, which may be long.
func bareCause(err error) error {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err
		}
		err = inner
	}
}

// longestShown is the length, in bytes, of the longest path that a message
// shows in full. The kernel takes paths of almost 4 KiB.
const longestShown = 512

// Shown returns the path of a cgroup as messages show it.
func Shown(path string) string {
	switch {
	case path == "":
		return "/"
	case len(path) > longestShown:
		return fmt.Sprintf("%s… (%d bytes)", strings.ToValidUTF8(path[:longestShown/4], ""), len(path))
	}
	return path
}
