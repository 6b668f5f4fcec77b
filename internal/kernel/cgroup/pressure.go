package cgroup

import (
	"fmt"

	"tenon.sh/tenon/internal/model/unit"
)

// Pressure reads RESOURCE.pressure, where resource is cpu, memory, io or
// (Linux 6.1) irq: how long tasks of the group and of all below it waited.
// It gives ErrUnsupported on v1, and where PSI is off for cgroups.
func (t *Tree) Pressure(path, resource string) (unit.Pressure, error) {
	h := t.all[0]
	file := resource + ".pressure"
	if h.version == 1 {
		return unit.Pressure{}, fmt.Errorf("read %s in %s: cgroup v1 has no pressure: %w", file, shown(path), ErrUnsupported)
	}
	text, err := h.readValue(path, file)
	if err != nil {
		return unit.Pressure{}, err
	}
	return unit.ParsePressure(text)
}
