package cgroup

import (
	"strings"
)

// KeepOpen returns a Tree that keeps files of counters and of settings open. To open and
// close a file costs more than to read it. An open file belongs to the group for which it
// was opened, and keeps a removed group in the kernel's memory. So the caller must call
// Close for a group that it stops reading, and for a group that was renamed, or removed and
// made again. A node may have more groups than a process may have descriptors. So at most
// the given number of files is open in each hierarchy. If there are too many counters,
// those that were read last stay open. Settings get at most half of the files.
func (t *Tree) KeepOpen(most int) *Tree {
	kept := &Tree{byController: map[string]*hierarchy{}, RecursiveProtection: t.RecursiveProtection, PassedOver: t.PassedOver}
	for _, h := range t.hierarchies {
		k := *h
		k.open = newOpenSet(most)
		kept.hierarchies = append(kept.hierarchies, &k)
		for c, of := range t.byController {
			if of == h {
				kept.byController[c] = &k
			}
		}
	}
	return kept
}

// Close closes the files of a group that the Tree keeps open.
func (t *Tree) Close(path string) {
	for _, h := range t.hierarchies {
		if h.open != nil {
			h.open.Close(path)
		}
	}
}

// CloseAll closes all files that the Tree keeps open. The Tree stays usable.
func (t *Tree) CloseAll() {
	for _, h := range t.hierarchies {
		if h.open != nil {
			h.open.CloseAll()
		}
	}
}

// counter reads a file of a group, and keeps it open.
func (h *hierarchy) counter(path, file string) (string, error) {
	if h.open == nil {
		return h.read(path, file)
	}
	return h.kept(path, file, 0)
}

// setting reads a file of a group. It keeps the file open only while more than half
// of the permitted number is free, so that counters can have the other half.
func (h *hierarchy) setting(path, file string) (string, error) {
	if h.open == nil {
		return h.readValue(path, file)
	}
	text, err := h.kept(path, file, h.open.MaxOpen()/2)
	return strings.TrimSuffix(text, "\n"), err
}

func (h *hierarchy) kept(path, file string, reserved int) (string, error) {
	dir, err := h.dir(path)
	if err != nil {
		return "", err
	}
	text, err := h.open.Read(path, dir, file, reserved)
	if err != nil {
		return h.readValue(path, file) // returns the full error
	}
	return text, nil
}
