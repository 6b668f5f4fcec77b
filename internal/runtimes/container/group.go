package container

import (
	"fmt"
	"slices"
	"strings"
)

// idLength is the length of the IDs of Docker and Podman: SHA-256 in
// hexadecimal.
const idLength = 64

// Locate sets the cgroup of each container to the cgroup of its first process,
// which the function cgroupOf returns. Call Locate directly after the listing,
// because another process may get the same PID later.
func Locate(all []Container, cgroupOf func(pid int) (path string, known bool)) {
	for i := range all {
		c := &all[i]
		if c.PID <= 0 {
			continue
		}
		if path, known := cgroupOf(c.PID); known {
			c.Cgroup = containerPath(path, c.ID)
		}
	}
}

// Groups returns the containers by the path of their cgroup. It omits a
// container if its cgroup is the root or is not among the paths. For Docker and
// Podman, the cgroup is found by the container's ID in its name. For other
// runtimes, Locate has set the path. A container of a rootless runtime can only
// have a cgroup that systemd delegated to its user. Otherwise the user could
// claim the cgroup of another container, and so change its class.
func Groups(all []Container, paths []string) map[string]Container {
	exists := make(map[string]bool, len(paths))
	byID := map[string]string{}
	for _, p := range paths {
		exists[p] = true
		id := idIn(lastName(p))
		// If a container has child cgroups that also have its ID, its own
		// cgroup is the one with the shortest path.
		if had, twice := byID[id]; id != "" && (!twice || len(p) < len(had)) {
			byID[id] = p
		}
	}
	groups := make(map[string]Container, len(all))
	for _, c := range all {
		path, found := byID[c.ID]
		if !found {
			path = c.Cgroup
		}
		if path != "" && exists[path] && c.mayHave(path) {
			groups[path] = c
		}
	}
	return groups
}

// mayHave reports whether the user of the container's runtime can make containers
// in this cgroup.
func (c Container) mayHave(path string) bool {
	return c.User == 0 || strings.HasPrefix(path, fmt.Sprintf("user.slice/user-%d.slice/", c.User))
}

// CanBe reports whether a cgroup with this path may be a container of the
// runtimes at these addresses. In containerd its name may be any, except one
// with a suffix that systemd uses for other units (.service, .slice, .socket).
func CanBe(path string, addresses []string) bool {
	name := lastName(path)
	if idIn(name) != "" {
		return len(addresses) > 0
	}
	for _, ending := range []string{".service", ".slice", ".socket"} {
		if strings.HasSuffix(name, ending) {
			return false
		}
	}
	return slices.ContainsFunc(addresses, func(a string) bool { return strings.HasPrefix(a, "containerd://") })
}

func lastName(path string) string { return path[strings.LastIndexByte(path, '/')+1:] }

// idIn returns the ID from the name of a container's cgroup: "docker-ID.scope",
// "libpod-ID" or "ID". For other names it returns "".
func idIn(name string) string {
	if strings.HasPrefix(name, "libpod-conmon-") {
		return "" // the monitor process of Podman
	}
	name = strings.TrimSuffix(name, ".scope")
	if len(name) < idLength {
		return ""
	}
	id := name[len(name)-idLength:]
	if strings.Trim(id, "0123456789abcdef") != "" {
		return ""
	}
	return id
}

// containerPath shortens the path of a process's cgroup to the path of its
// container's cgroup. Inside, the container may have created more cgroups.
func containerPath(path, id string) string {
	path = strings.Trim(path, "/")
	for i := 0; i <= len(path); i++ {
		if i < len(path) && path[i] != '/' {
			continue
		}
		name := strings.TrimSuffix(path[strings.LastIndexByte(path[:i], '/')+1:i], ".scope")
		if name == id || strings.HasSuffix(name, "-"+id) || strings.HasSuffix(name, ":"+id) {
			return path[:i]
		}
	}
	return path
}
