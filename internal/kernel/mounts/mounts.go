// Package mounts reads where file systems are mounted, from mountinfo
// (Documentation/filesystems/proc.rst, section 3.5).
package mounts

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// A Mount is one line of mountinfo.
type Mount struct {
	Root    string   // the directory of the file system that is mounted; "/" if it is all of it
	Point   string   // mount point
	Type    string   // of the file system, such as cgroup2
	Options []string // of the superblock; for cgroup these name the controllers
}

// StartsAboveNamespace reports whether the root of a cgroup mount lies above the
// root of the reader's cgroup namespace.
func (m Mount) StartsAboveNamespace() bool {
	return m.Root == "/.." || strings.HasPrefix(m.Root, "/../")
}

// Read lists the mounts of the given types of file systems that this process
// sees, in the order of procRoot/self/mountinfo. If some lines are damaged, it
// returns the mounts of all others, and an error that names the damaged lines.
func Read(procRoot string, types ...string) ([]Mount, error) {
	all, err := list(procRoot)
	return slices.DeleteFunc(all, func(m Mount) bool { return !slices.Contains(types, m.Type) }), err
}

// Below does the same as Read for the mounts of all types at or below the directories.
func Below(procRoot string, dirs ...string) ([]Mount, error) {
	all, err := list(procRoot)
	return slices.DeleteFunc(all, func(m Mount) bool {
		return !slices.ContainsFunc(dirs, func(dir string) bool { return m.Point == dir || strings.HasPrefix(m.Point, dir+"/") })
	}), err
}

func list(procRoot string) ([]Mount, error) {
	file := filepath.Join(procRoot, "self/mountinfo")
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	all, err := parse(string(text))
	if err != nil {
		err = fmt.Errorf("parse %s: %w", file, err)
	}
	return all, err
}

// parse reads lines such as
//
//	32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime shared:9 - cgroup cgroup rw,cpu
func parse(text string) (all []Mount, err error) {
	var errs []error
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		// The number of fields between the sixth field and the dash varies.
		before, after, ok := strings.Cut(line, " - ")
		f, g := strings.Split(before, " "), strings.Split(after, " ")
		if !ok || len(f) < 6 || len(g) < 3 {
			errs = append(errs, fmt.Errorf("line %q: want the fields of a mount", line))
			continue
		}
		all = append(all, Mount{Root: unescape(f[3]), Point: unescape(f[4]), Type: g[0], Options: strings.Split(g[2], ",")})
	}
	return all, errors.Join(errs...)
}

// unescape decodes the kernel's octal escapes, such as \040 for a space.
func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+4 <= len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
