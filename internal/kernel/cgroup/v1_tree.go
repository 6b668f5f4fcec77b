package cgroup

import (
	"os"
	"path/filepath"
	"slices"

	"tenon.sh/tenon/internal/kernel/mounts"
)

// addV1 finds the v1 hierarchy of each controller. Several controllers may share one
// hierarchy ("cpu,cpuacct"). A named hierarchy, such as systemd's, has no controllers.
func (t *Tree) addV1(all []mounts.Mount) {
	byPoint := map[string]*hierarchy{}
	passed := map[string]bool{}
	for _, c := range controllers {
		m, found := v1Mount(t, wholeFirst(all, func(m mounts.Mount) bool {
			return m.Type == "cgroup" && slices.Contains(m.Options, ControllerIn(1, c))
		}), passed)
		if !found {
			continue
		}
		if byPoint[m.Point] == nil {
			byPoint[m.Point] = &hierarchy{version: 1, mount: m.Point, above: m.StartsAboveNamespace()}
		}
		t.byController[c] = byPoint[m.Point]
	}
}

// v1Mount returns the first mount that shows a cgroup. Every cgroup has
// cgroup.procs. If there is no such mount, it returns the first one, so that
// errors name it. It records each mount that it cannot read once: passed holds
// their mount points.
func v1Mount(t *Tree, of []mounts.Mount, passed map[string]bool) (m mounts.Mount, found bool) {
	for _, m := range of {
		_, err := os.Stat(filepath.Join(m.Point, "cgroup.procs"))
		if err == nil {
			return m, true
		}
		if !passed[m.Point] {
			passed[m.Point] = true
			passOver(t, hidden(m, err))
		}
	}
	if len(of) == 0 {
		return m, false
	}
	return of[0], true
}
