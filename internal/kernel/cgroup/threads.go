package cgroup

import "fmt"

// Threads lists the threads of the group in ascending order. Threads of the
// groups below it are not listed.
func (t *Tree) Threads(path string) ([]int, error) {
	h, err := t.home(path)
	if err != nil {
		return nil, err
	}
	file := "cgroup.threads"
	if h.version == 1 {
		file = "tasks"
	}
	text, err := h.read(path, file)
	if err != nil {
		return nil, err
	}
	ids, err := parseProcs(text)
	if err != nil {
		return nil, fmt.Errorf("parse %s in %s: %w", file, printPath(path), err)
	}
	return ids, nil
}
