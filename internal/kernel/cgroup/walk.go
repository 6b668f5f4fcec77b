package cgroup

import (
	"errors"
	"path/filepath"
	"slices"
	"syscall"

	"tenon.sh/tenon/internal/kernel/partial"
)

// errStop ends a walk early.
var errStop = errors.New("stop")

// Paths lists all groups below the root, sorted. With a partial.Error, it lists
// all groups that it could reach. It lists a group that it cannot enter if that
// group can at least be found.
func (t *Tree) Paths() ([]string, error) {
	var paths []string
	h := t.hierarchies[0]
	err := h.eachBelow("", func(path string) error {
		if path != "" {
			paths = append(paths, path)
		}
		return nil
	})
	missed, rest := partial.Split(err)
	if rest != nil {
		return nil, rest
	}
	slices.Sort(paths)
	if missed == nil {
		return paths, nil
	}
	return slices.DeleteFunc(paths, func(path string) bool {
		if !missed.MayHide(path) {
			return false
		}
		_, err := h.inode(path)
		return err != nil
	}), missed
}

// eachBelow calls the function visit for a group and all groups below it,
// parents first. It skips groups that disappear meanwhile. It returns the error
// of the first group, and errStop. All other groups that cannot be visited or
// listed become misses of a partial.Error.
func (h *hierarchy) eachBelow(path string, visit func(string) error) error {
	if err := visit(path); err != nil {
		if errors.Is(err, ErrGone) {
			return nil
		}
		return err
	}
	children, err := h.children(path)
	if err != nil && !errors.Is(err, ErrGone) {
		return err
	}
	missed := &partial.Error{}
	for _, c := range children {
		if err := h.walk(filepath.Join(path, c), visit, missed); err != nil {
			return err
		}
	}
	return missed.OrNil()
}

// isEnding reports whether a file of a group is missing. The kernel removes the
// files of a group before its directory, so a group that ends has no cgroup.procs
// for a moment.
func isEnding(err error) bool {
	return errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ENODEV)
}

// walk is the part of eachBelow for the groups below the first. It fails only
// with errStop.
func (h *hierarchy) walk(path string, visit func(string) error, missed *partial.Error) error {
	switch err := visit(path); {
	case errors.Is(err, ErrGone):
		return nil
	case errors.Is(err, errStop):
		return err
	case isEnding(err): // groups below it may be there again
	case err != nil:
		missed.Add(path, err)
	}
	children, err := h.children(path)
	if err != nil && !errors.Is(err, ErrGone) {
		missed.Add(path, err)
	}
	for _, c := range children {
		if err := h.walk(filepath.Join(path, c), visit, missed); err != nil {
			return err
		}
	}
	return nil
}
