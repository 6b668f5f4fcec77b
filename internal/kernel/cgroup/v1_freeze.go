package cgroup

import "strings"

// The files of the v1 freezer
// (Documentation/admin-guide/cgroup-v1/freezer-subsystem.rst).
// freezer.self_freezing shows the state of the group itself. freezer.state also
// shows whether an ancestor is frozen.
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
