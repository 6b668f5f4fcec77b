package cgroup

import (
	"fmt"
	"strings"
	"time"

	"tenon.sh/tenon/internal/model/unit"
)

const ioLatency = "io.latency"

// ReadIOLatency reads io.latency (Linux 4.19, CONFIG_BLK_CGROUP_IOLATENCY): the
// latency target of the group on each device that has one. On v1 and for the
// root, which have no targets, it returns ErrUnsupported.
func (t *Tree) ReadIOLatency(path string) (map[unit.Device]time.Duration, error) {
	if t.VersionOf(block) == 1 {
		return nil, fmt.Errorf("read %s in %s: cgroup v1 has no latency targets: %w", ioLatency, printPath(path), ErrUnsupported)
	}
	return read(t, block, path, ioLatency, parseIOLatency)
}

// WriteIOLatency sets the group's latency targets, in whole microseconds. If
// one of the devices is a partition or missing, it returns ENODEV, but still
// writes the targets of the others.
func (t *Tree) WriteIOLatency(path string, targets map[unit.Device]time.Duration) error {
	now, err := t.ReadIOLatency(path)
	if err != nil {
		return fmt.Errorf("write %s: %w", ioLatency, err)
	}
	return eachLine(now, targets, 0, func(d unit.Device, _, to time.Duration) error {
		return t.write(block, path, ioLatency, fmt.Sprintf("%v target=%d", d, to.Microseconds()))
	})
}

// parseIOLatency reads lines such as "254:0 target=75000".
func parseIOLatency(text string) (map[unit.Device]time.Duration, error) {
	return parseDevices(text, func(words []string) (time.Duration, error) {
		for _, w := range words {
			if value, is := strings.CutPrefix(w, "target="); is {
				return parseMicroseconds(value)
			}
		}
		return 0, fmt.Errorf("%q: want target=MICROSECONDS", words)
	})
}
