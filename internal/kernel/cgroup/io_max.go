package cgroup

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"tenon.sh/tenon/internal/model/unit"
)

// IOLimits are the limits of a group on one device, in bytes and in operations
// per second.
type IOLimits struct{ ReadBPS, WriteBPS, ReadIOPS, WriteIOPS int64 }

// NoIORate means no limit: "max" on v2, 0 on v1.
const NoIORate int64 = math.MaxInt64

var noIOLimits = IOLimits{NoIORate, NoIORate, NoIORate, NoIORate}

// A rate describes one of the four limits: its key in io.max, its file on v1,
// and its field in IOLimits.
type rate struct {
	key, v1File string
	of          func(*IOLimits) *int64
}

var rates = [...]rate{
	{"rbps", "blkio.throttle.read_bps_device", func(l *IOLimits) *int64 { return &l.ReadBPS }},
	{"wbps", "blkio.throttle.write_bps_device", func(l *IOLimits) *int64 { return &l.WriteBPS }},
	{"riops", "blkio.throttle.read_iops_device", func(l *IOLimits) *int64 { return &l.ReadIOPS }},
	{"wiops", "blkio.throttle.write_iops_device", func(l *IOLimits) *int64 { return &l.WriteIOPS }},
}

// ReadIOMax reads io.max (v1: blkio.throttle.*_device): the limits on each device that
// has any. For the root of v2, which lacks the file, it returns ErrUnsupported.
func (t *Tree) ReadIOMax(path string) (map[unit.Device]IOLimits, error) {
	if t.VersionOf(block) == 1 {
		return t.v1ReadIOMax(path)
	}
	return read(t, block, path, "io.max", parseIOMax)
}

// WriteIOMax sets the limits of a group. It removes the limits on devices that are
// not in the map. The kernel takes one device at a time, and whole disks only. For
// a partition or a missing device, WriteIOMax returns ENODEV, but still writes the
// limits on the others. On v1 they do not apply to the groups below.
func (t *Tree) WriteIOMax(path string, limits map[unit.Device]IOLimits) error {
	now, err := t.ReadIOMax(path)
	if err != nil {
		return fmt.Errorf("write io.max: %w", err)
	}
	return eachLine(now, limits, noIOLimits, func(d unit.Device, from, to IOLimits) error {
		if t.VersionOf(block) == 1 {
			return t.v1ChangeIOMax(path, d, from, to)
		}
		line := d.String()
		for _, r := range rates {
			line += " " + r.key + "=" + count(*r.of(&to))
		}
		return t.write(block, path, "io.max", line)
	})
}

// parseIOMax reads lines such as "254:0 rbps=1048576 wbps=max riops=max
// wiops=max". It ignores unknown keys.
func parseIOMax(text string) (map[unit.Device]IOLimits, error) {
	return parseDevices(text, func(words []string) (IOLimits, error) {
		l := noIOLimits
		for _, word := range words {
			key, value, _ := strings.Cut(word, "=")
			i := slices.IndexFunc(rates[:], func(r rate) bool { return r.key == key })
			if i < 0 {
				continue
			}
			n, err := parseCount(value)
			if err != nil {
				return l, err
			}
			*rates[i].of(&l) = n
		}
		return l, nil
	})
}

// parseDevices reads a file with one line per device, and perhaps a line
// "default", which it skips. parse gets the words after the device number.
func parseDevices[T any](text string, parse func(words []string) (T, error)) (map[unit.Device]T, error) {
	m := map[unit.Device]T{}
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) == 0 || words[0] == "default" {
			continue
		}
		d, err := unit.ParseDevice(words[0])
		if err != nil {
			return nil, err
		}
		if m[d], err = parse(words[1:]); err != nil {
			return nil, fmt.Errorf("device %v: %w", d, err)
		}
	}
	return m, nil
}

// eachLine calls the function write for every device whose values in the maps
// from and to differ, in the order of the device numbers. A device that is
// missing in a map has the value none there.
func eachLine[T comparable](from, to map[unit.Device]T, none T, write func(d unit.Device, from, to T) error) error {
	var changed []unit.Device
	lineOf := func(m map[unit.Device]T, d unit.Device) T {
		if v, has := m[d]; has {
			return v
		}
		return none
	}
	for d := range from {
		if lineOf(to, d) != from[d] {
			changed = append(changed, d)
		}
	}
	for d := range to {
		if _, had := from[d]; !had && to[d] != none {
			changed = append(changed, d)
		}
	}
	slices.SortFunc(changed, unit.Device.Compare)
	var errs []error
	for _, d := range changed {
		errs = append(errs, write(d, lineOf(from, d), lineOf(to, d)))
	}
	return errors.Join(errs...)
}
