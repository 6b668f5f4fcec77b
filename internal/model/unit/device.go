package unit

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
)

// A Device is the major and minor number of a block device, as in the cgroup
// files: "254:0".
type Device struct{ Major, Minor uint32 }

// String prints "254:0".
func (d Device) String() string {
	return strconv.FormatUint(uint64(d.Major), 10) + ":" + strconv.FormatUint(uint64(d.Minor), 10)
}

// Compare orders devices by major, then minor number.
func (d Device) Compare(o Device) int {
	return cmp.Or(cmp.Compare(d.Major, o.Major), cmp.Compare(d.Minor, o.Minor))
}

// ParseDevice reads the text that String prints.
func ParseDevice(s string) (Device, error) {
	major, minor, two := strings.Cut(s, ":")
	a, err1 := strconv.ParseUint(major, 10, 32)
	b, err2 := strconv.ParseUint(minor, 10, 32)
	if !two || err1 != nil || err2 != nil {
		return Device{}, fmt.Errorf("block device %.80q: want MAJOR:MINOR such as 254:0", s)
	}
	return Device{uint32(a), uint32(b)}, nil
}

// MarshalText prints d as String does.
func (d Device) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads the text that MarshalText prints.
func (d *Device) UnmarshalText(text []byte) (err error) {
	*d, err = ParseDevice(string(text))
	return err
}
