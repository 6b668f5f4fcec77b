package container

import "strings"

// idLength is that of Docker's and Podman's IDs: SHA-256 in hexadecimal.
const idLength = 64

// Groups finds the cgroup of each container among the paths of those that
// exist. It is the one whose name holds the container's ID, as Docker's and
// Podman's do; or that of its first process, which of tells. A container whose
// cgroup is not found, or is the root, is left out.
func Groups(all []Container, paths []string, of func(pid int) (path string, known bool)) map[string]Container {
	byID := map[string]string{}
	for _, p := range paths {
		id := idIn(p[strings.LastIndexByte(p, '/')+1:])
		// The container's own group is above those that it makes itself.
		if had, twice := byID[id]; id != "" && (!twice || len(p) < len(had)) {
			byID[id] = p
		}
	}
	groups := make(map[string]Container, len(all))
	for _, c := range all {
		path, found := byID[c.ID]
		if !found && c.PID > 0 {
			if path, found = of(c.PID); found {
				path = whole(path, c.ID)
			}
		}
		if found && path != "" {
			groups[path] = c
		}
	}
	return groups
}

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

// whole cuts what a container has made inside of its own cgroup from the path
// of its first process.
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
