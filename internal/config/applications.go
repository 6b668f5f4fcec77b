package config

import (
	"fmt"
	"slices"
	"strings"

	"tenon.sh/tenon/internal/model/node"
)

// These are the directories of programs that have no cgroupPath (Koordinator:
// apis/slo/v1alpha1/host_application.go).
const (
	hostSensitive  = "host-latency-sensitive"
	hostBestEffort = "host-best-effort"
)

// Place returns the place of a program's cgroup: the base (see HostCgroup), and the
// path below the base. The path is empty if the program has no cgroup of its own.
func (h HostApplication) Place() (base, path string) {
	c := h.Cgroup
	if c == (HostCgroup{}) {
		folder := hostSensitive
		switch class := node.Class(valueOf(h.Class)); {
		case class == node.BE:
			folder = hostBestEffort
		case !class.Sensitive():
			return "", ""
		}
		c.ParentDir, c.RelativePath = node.Some(folder), h.Name
	}
	own := strings.FieldsFunc(valueOf(c.ParentDir)+"/"+valueOf(c.RelativePath), func(r rune) bool { return r == '/' })
	if len(own) == 0 || slices.Contains(own, "..") || slices.Contains(own, ".") {
		return "", "" // other programs share this cgroup
	}
	return c.Base.Or("CgroupRoot"), strings.Join(own, "/")
}

// notices returns a notice for each program that Tenon does not manage, and for
// each program without an explicit cgroup, whose class determines the cgroup.
func (h HostApplications) notices() []string {
	var notices []string
	for i, a := range h.Applications {
		at := fmt.Sprintf("%s.applications[%d] %s", keyHostApps, i, quote(valueOf(a.Name)))
		switch _, path := a.Place(); {
		case !a.Class.Known():
			notices = append(notices, at+" has no qos, so Tenon leaves it alone")
		case path == "":
			notices = append(notices, at+" names no cgroup of its own below its base, so Tenon leaves it alone: want cgroupPath.relativePath")
		case a.Cgroup == (HostCgroup{}):
			notices = append(notices, fmt.Sprintf("%s has no cgroupPath, so it is in %s, as in Koordinator", at, path))
		}
	}
	return notices
}

// faults returns the faults that the struct tags cannot express.
func (h HostApplications) faults() []Fault {
	c := checker{bad: map[string]bool{}}
	var names []string
	for i, a := range h.Applications {
		at := fmt.Sprintf("%s.applications[%d]", keyHostApps, i)
		c.need(at+".name", valueOf(a.Name) != "", "a name that no other application has")
		if name := valueOf(a.Name); name != "" && slices.Contains(names, name) {
			c.fault(at+".name", quote(name)+": another application has this name")
		}
		names = append(names, valueOf(a.Name))
	}
	return c.faults
}
