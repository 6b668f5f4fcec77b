package cgroup

import (
	"fmt"
	"strconv"
	"strings"
)

// mount is one line of /proc/PID/mountinfo for a cgroup mount.
type mount struct {
	root    string   // the group that is mounted; "/" if it is the whole hierarchy
	point   string   // mount point
	fsType  string   // cgroup (v1) or cgroup2
	options []string // of the superblock; on v1 these name the controllers
}

// startsAboveNamespace reports whether the root of the mount lies above the
// root of the reader's cgroup namespace.
func (m mount) startsAboveNamespace() bool {
	return m.root == "/.." || strings.HasPrefix(m.root, "/../")
}

// parseMountInfo returns the cgroup mounts. The text has lines such as
//
//	32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime shared:9 - cgroup cgroup rw,cpu
//
// (Documentation/filesystems/proc.rst, section 3.5).
func parseMountInfo(text string) ([]mount, error) {
	var mounts []mount
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		// The number of fields between the sixth field and the dash varies.
		before, after, ok := strings.Cut(line, " - ")
		f, g := strings.Split(before, " "), strings.Split(after, " ")
		if !ok || len(f) < 6 || len(g) < 3 {
			return nil, fmt.Errorf("line %q: want the fields of a mount", line)
		}
		if g[0] != "cgroup" && g[0] != "cgroup2" {
			continue
		}
		mounts = append(mounts, mount{
			root: unescape(f[3]), point: unescape(f[4]), fsType: g[0], options: strings.Split(g[2], ","),
		})
	}
	return mounts, nil
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
