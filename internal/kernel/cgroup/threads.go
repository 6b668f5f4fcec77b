package cgroup

import (
	"errors"
	"fmt"
)

// Threads lists the threads of the group in ascending order, without those of
// the groups below it.
func (t *Tree) Threads(path string) ([]int, error) {
	h := t.hierarchies[0] // most groups are in it, and need no search
	text, err := h.threads(path)
	if errors.Is(err, ErrGone) {
		if h, err = t.home(path); err == nil {
			text, err = h.threads(path)
		}
	}
	if err != nil {
		return nil, err
	}
	ids, err := parseProcs(text)
	if err != nil {
		return nil, fmt.Errorf("parse the threads of %s: %w", printPath(path), err)
	}
	return ids, nil
}

// threads reads the file with the threads of a group.
func (h *hierarchy) threads(path string) (string, error) {
	if h.version == 1 {
		return h.read(path, "tasks")
	}
	return h.read(path, "cgroup.threads")
}
