package container

import (
	"slices"
	"strings"
)

// idLength is the length of Docker's and Podman's IDs: SHA-256 in hexadecimal.
const idLength = 64

// Locate notes for each container the cgroup of its first process, as returned
// by the function of. Call it right after the listing: later the process number
// may belong to another process.
func Locate(all []Container, of func(pid int) (path string, known bool)) {
	for i := range all {
		c := &all[i]
		if c.PID <= 0 {
			continue
		}
		if path, known := of(c.PID); known {
			c.Cgroup = whole(path, c.ID)
		}
	}
}

// Groups finds the cgroup of each container among the paths of those that
// exist. It is the one whose name holds the container's ID, as Docker's and
// Podman's do, or the one that Locate found. A container whose cgroup is not
// there, or is the root, is left out.
func Groups(all []Container, paths []string) map[string]Container {
	exists := make(map[string]bool, len(paths))
	byID := map[string]string{}
	for _, p := range paths {
		exists[p] = true
		id := idIn(lastName(p))
		// The container's own group is above those that it makes itself.
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
		if path != "" && exists[path] {
			groups[path] = c
		}
	}
	return groups
}

// CanBe reports whether the name of a cgroup allows it to be a container of the
// runtimes at these addresses. A containerd cgroup may have any name except the
// suffixes systemd uses for other units (.service, .slice, .socket).
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

// idIn returns the ID in the name of a container's cgroup: "docker-ID.scope",
// "libpod-ID", "ID". It is empty for other cgroups.
func idIn(name string) string {
	if strings.HasPrefix(name, "libpod-conmon-") {
		return "" // Podman's own process that looks after the container
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

// whole cuts the cgroups that a container has made inside its own cgroup off
// the path of its first process.
func whole(path, id string) string {
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
