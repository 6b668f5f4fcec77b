package cgroup

import (
	"fmt"

	"tenon.sh/tenon/internal/model/unit"
)

// Pressure reads how long tasks in and below a group waited for a resource:
// cpu, memory, io or (Linux 6.1) irq. It returns ErrUnsupported on v1, and if
// pressure stall information (PSI) is off for cgroups. If one line is damaged, it
// returns the other one, and an error.
func (t *Tree) Pressure(path, resource string) (unit.Pressure, error) {
	h := t.hierarchies[0]
	file := resource + ".pressure"
	if h.version == 1 {
		return unit.Pressure{}, fmt.Errorf("read %s in %s: cgroup v1 has no pressure: %w", file, printPath(path), ErrUnsupported)
	}
	text, err := h.readValue(path, file)
	if err != nil {
		return unit.Pressure{}, err
	}
	p, err := unit.ParsePressure(text)
	if err != nil {
		err = fmt.Errorf("parse %s in %s: %w", file, printPath(path), err)
	}
	return p, err
}
