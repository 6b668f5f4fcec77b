package cgroup

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"tenon.sh/tenon/internal/model/unit"
)

// IOUse is what a group and all below it have read from and written to block
// devices since it was made, over all devices. What passes through a stacked
// device, such as LVM's, counts there and on the device below.
type IOUse struct{ Read, Written unit.Bytes }

// IOUse reads io.stat (Documentation/admin-guide/cgroup-v2.rst, IO; v1:
// blkio.throttle.io_service_bytes_recursive). Pages that are written back
// later count on v2 only for the group that made them dirty; on v1 they count
// for the root, and this was seen to count (on 6.18) only for devices on which
// some group has a limit: there the numbers are too small.
func (t *Tree) IOUse(path string) (IOUse, error) {
	if t.VersionOf(block) == 1 {
		return read(t, block, path, "blkio.throttle.io_service_bytes_recursive", v1ParseIOUse)
	}
	return read(t, block, path, "io.stat", parseIOUse)
}

// parseIOUse reads lines such as "8:16 rbytes=1459200 wbytes=314773504
// rios=192 wios=353 dbytes=0 dios=0". A device that was never used may have no
// more than its number.
func parseIOUse(text string) (IOUse, error) {
	var u IOUse
	for line := range strings.Lines(text) {
		for field := range strings.FieldsSeq(line) {
			key, value, _ := strings.Cut(field, "=")
			var err error
			switch key {
			case "rbytes":
				err = addBytes(&u.Read, value)
			case "wbytes":
				err = addBytes(&u.Written, value)
			}
			if err != nil {
				return IOUse{}, fmt.Errorf("line %q: %s: %w", strings.TrimSpace(line), key, err)
			}
		}
	}
	return u, nil
}

// addBytes adds a number that must be one, and whose sum must be one.
func addBytes(to *unit.Bytes, text string) error {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || n > math.MaxInt64-int64(*to) {
		return errors.New("want a number of bytes")
	}
	*to += unit.Bytes(n)
	return nil
}
