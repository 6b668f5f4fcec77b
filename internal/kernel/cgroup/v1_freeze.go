package cgroup

import "strings"

// The files of the v1 freezer
// (Documentation/admin-guide/cgroup-v1/freezer-subsystem.rst). freezer.state
// also shows that an ancestor is frozen. freezer.self_freezing shows only the
// state of the group itself.
const (
	v1FreezerState = "freezer.state"
	v1SelfFreezing = "freezer.self_freezing"
)

func (h *hierarchy) v1Freeze(path string, frozen bool) error {
	state := "THAWED"
	if frozen {
		state = "FROZEN"
	}
	return h.write(path, v1FreezerState, state)
}

func (h *hierarchy) v1Still(path string) (bool, error) {
	text, err := h.read(path, v1FreezerState)
	return strings.TrimSpace(text) == "FROZEN", err
}
