package cgroup

import "slices"

// addV1 finds the v1 hierarchy of each controller. Several controllers may share one
// hierarchy ("cpu,cpuacct"). A named hierarchy, such as systemd's, has no controllers.
func (t *Tree) addV1(mounts []mount) {
	byPoint := map[string]*hierarchy{}
	for _, c := range controllers {
		m, ok := pick(mounts, func(m mount) bool { return m.fsType == "cgroup" && slices.Contains(m.options, ControllerIn(1, c)) })
		if !ok {
			continue
		}
		if byPoint[m.point] == nil {
			byPoint[m.point] = &hierarchy{version: 1, mount: m.point, above: m.startsAboveNamespace()}
		}
		t.byController[c] = byPoint[m.point]
	}
}
