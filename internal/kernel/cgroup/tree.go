// Package cgroup reads and writes control groups in the terms of cgroup v2
// (Documentation/admin-guide/cgroup-v2.rst). The code in the files v1_*.go
// translates these terms for controllers on v1. If the kernel couples several
// files, the package reads and writes them as one value.
//
// A path names a group in every hierarchy at once, relative to the root of the
// hierarchy: "kubepods/besteffort". The path "" is the root itself.
package cgroup

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"tenon.sh/tenon/internal/kernel/mounts"
)

// ErrUnsupported means that a controller or a file does not exist. The kernel is too
// old or was built without it, or the parent group does not enable the controller.
var ErrUnsupported = errors.New("not supported here")

// ErrGone means that the cgroup does not exist, or does not exist any more.
var ErrGone = errors.New("no such cgroup")

// The controllers that Tenon uses. On v2, cpuacct is part of cpu.
const (
	cpu     = "cpu"
	cpuacct = "cpuacct"
	cpuset  = "cpuset"
	memory  = "memory"
	pids    = "pids"
	block   = "io"      // blkio on v1
	freezer = "freezer" // v1 only: v2 freezes without a controller
)

var controllers = []string{cpu, cpuacct, cpuset, memory, pids, block, freezer}

// Controllers lists the controllers that Tenon uses, by their names on v2.
func Controllers() []string { return slices.Clone(controllers) }

// ControllerIn returns the name of a controller in /proc/PID/cgroup, in the
// given version of cgroups.
func ControllerIn(version int, controller string) string {
	if version == 1 && controller == block {
		return "blkio"
	}
	return controller
}

// A Tree is the cgroup file system of a node: one v2 hierarchy, several v1
// hierarchies, or a mix. It stores only mount points and, after KeepOpen, open files.
type Tree struct {
	// byController is the hierarchy of each controller.
	byController map[string]*hierarchy
	// hierarchies lists each hierarchy once, the one of the cpu controller
	// first. A v1 group may be in several hierarchies. Its children and its
	// inode are then looked up in the first of them.
	hierarchies []*hierarchy
	// RecursiveProtection says that memory.min and memory.low of a group also
	// protect memory below it that has no protection of its own, as far as
	// protected children do not use them. They do if cgroup v2 is mounted with
	// memory_recursiveprot (Linux 5.7), which is the default of systemd.
	RecursiveProtection bool
	// PassedOver holds the mounts and lines of mountinfo that Detect could not
	// read, with the causes. What it says is for people: the tree has all that
	// could be read.
	PassedOver []error
}

// A hierarchy is one mounted cgroup tree.
type hierarchy struct {
	version int // 1 or 2
	mount   string
	above   bool     // its root lies above the cgroup namespace of this process
	open    *openSet // nil: no files are kept open
	// wrote is called after each write of a file. It is a model of what else the
	// kernel changes then; nil: the files are those of the kernel.
	wrote func(dir, file string)
}

// dir returns the directory of a group. It rejects a path that leads out of the
// hierarchy.
func (h *hierarchy) dir(path string) (string, error) {
	if path != "" && (!filepath.IsLocal(path) || filepath.Clean(path) != path || path == ".") {
		return "", fmt.Errorf("cgroup path %q: want a relative path such as a/b: %w", path, syscall.EINVAL)
	}
	if path == "" {
		return h.mount, nil
	}
	return h.mount + "/" + path, nil
}

// Detect finds the hierarchies in procRoot/self/mountinfo, and whether each
// controller is on v1 or v2. On a hybrid node the v2 tree is mounted, but has
// only some controllers or none. If a mount cannot be read, because another one
// hides it, Detect tries the next mount of its kind: see Tree.PassedOver. If no
// controller is mounted, Detect returns ErrUnsupported.
func Detect(procRoot string) (*Tree, error) {
	all, err := mounts.Read(procRoot, "cgroup", "cgroup2")
	t := &Tree{byController: map[string]*hierarchy{}}
	if passOver(t, err); err != nil && len(all) == 0 {
		return nil, err
	}
	t.addV1(all)
	t.addV2(all)
	for _, c := range controllers {
		if h := t.byController[c]; h != nil && !slices.Contains(t.hierarchies, h) {
			t.hierarchies = append(t.hierarchies, h)
		}
	}
	if len(t.hierarchies) == 0 {
		err := fmt.Errorf("find cgroups: no hierarchy with any of the controllers %s in %s: %w",
			strings.Join(controllers, " "), filepath.Join(procRoot, "self/mountinfo"), ErrUnsupported)
		for _, passed := range t.PassedOver {
			err = fmt.Errorf("%w; %w", err, passed)
		}
		return nil, err
	}
	return t, nil
}

// passOver records why a mount was passed over. It ignores nil.
func passOver(t *Tree, err error) {
	if err != nil {
		t.PassedOver = append(t.PassedOver, err)
	}
}

// addV2 adds the v2 tree, with the controllers in its root. These are only the
// controllers that are in no v1 hierarchy.
func (t *Tree) addV2(all []mounts.Mount) {
	for _, m := range wholeFirst(all, func(m mounts.Mount) bool { return m.Type == "cgroup2" }) {
		h := &hierarchy{version: 2, mount: m.Point, above: m.StartsAboveNamespace()}
		text, err := h.read("", "cgroup.controllers")
		if err != nil {
			passOver(t, hidden(m, err))
			continue
		}
		for _, c := range strings.Fields(text) {
			if slices.Contains(controllers, c) && t.byController[c] == nil {
				t.byController[c] = h
			}
		}
		t.RecursiveProtection = t.byController[memory] == h && slices.Contains(m.Options, "memory_recursiveprot")
		if t.byController[cpu] == h && t.byController[cpuacct] == nil {
			t.byController[cpuacct] = h
		}
		return
	}
}

// hidden returns the error of a mount that cannot be read.
func hidden(m mounts.Mount, err error) error {
	return fmt.Errorf("the %s mount at %s cannot be read, perhaps because another mount hides it: %w", m.Type, m.Point, err)
}

// wholeFirst returns the matching mounts: first those that show the whole
// hierarchy, and then the bind mounts of single groups.
func wholeFirst(all []mounts.Mount, match func(mounts.Mount) bool) []mounts.Mount {
	found := slices.DeleteFunc(slices.Clone(all), func(m mounts.Mount) bool { return !match(m) })
	slices.SortStableFunc(found, func(a, b mounts.Mount) int {
		switch {
		case a.Root == "/" && b.Root != "/":
			return -1
		case a.Root != "/" && b.Root == "/":
			return 1
		}
		return 0
	})
	return found
}

// StartsAboveNamespace reports whether the tree begins above the cgroup
// namespace of this process. An example is a container that has its own cgroup
// namespace and mounts the host's /sys/fs/cgroup. There, the paths in
// /proc/PID/cgroup, such as /../../init.scope, are relative to the namespace.
// They are not paths of this tree (cgroup_namespaces(7)).
func (t *Tree) StartsAboveNamespace() bool {
	return slices.ContainsFunc(t.hierarchies, func(h *hierarchy) bool { return h.above })
}

// Version returns the cgroup version of the cpu controller, 1 or 2. Without a
// cpu controller, it returns the version of the first available controller.
func (t *Tree) Version() int { return t.hierarchies[0].version }

// VersionOf returns the cgroup version of a controller, such as "memory": 1, 2,
// or 0 if the controller is not mounted.
func (t *Tree) VersionOf(controller string) int {
	if h := t.byController[controller]; h != nil {
		return h.version
	}
	return 0
}

// Has reports whether a controller, such as "memory", is mounted.
func (t *Tree) Has(controller string) bool { return t.byController[controller] != nil }

// Dir returns the directory that a group has in the hierarchy of a controller.
// The directory may not exist.
func (t *Tree) Dir(controller, path string) (string, error) {
	h, err := t.hierarchy(controller)
	if err != nil {
		return "", err
	}
	return h.dir(path)
}

func (t *Tree) hierarchy(controller string) (*hierarchy, error) {
	if h := t.byController[controller]; h != nil {
		return h, nil
	}
	return nil, fmt.Errorf("cgroup controller %s is not mounted: %w", controller, ErrUnsupported)
}
