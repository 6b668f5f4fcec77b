package cgroup

import (
	"errors"
	"fmt"
	"math"
	"strings"

	"tenon.sh/tenon/internal/model/unit"
)

// IOUse is the number of bytes that a group and its descendants have read from
// and written to block devices so far. I/O on a stacked device, such as LVM,
// counts twice: for this device and for the one below it.
// NoRead and NoWritten say that a line is damaged, so that the sum is not known.
type IOUse struct {
	Read, Written     unit.Bytes
	NoRead, NoWritten bool
}

// IOUse reads io.stat (Documentation/admin-guide/cgroup-v2.rst, IO; v1:
// blkio.throttle.io_service_bytes_recursive). On v2, the write-back of a page
// counts for the group that changed the page. On v1, write-back counts for the
// root, and on Linux 6.18 only on devices for which some group has a limit. So
// on v1 the numbers of other groups are too small. If lines are damaged, IOUse
// returns what is still known, and an error.
func (t *Tree) IOUse(path string) (IOUse, error) {
	if t.VersionOf(block) == 1 {
		return read(t, block, path, "blkio.throttle.io_service_bytes_recursive", v1ParseIOUse)
	}
	return read(t, block, path, "io.stat", parseIOUse)
}

// parseIOUse reads lines such as "8:16 rbytes=1459200 wbytes=314773504 rios=192
// wios=353 dbytes=0 dios=0". The line of an unused device may contain only the
// device number.
func parseIOUse(text string) (IOUse, error) {
	var u IOUse
	var errs []error
	for line := range strings.Lines(text) {
		read, written, fields := false, false, 0
		for field := range strings.FieldsSeq(line) {
			key, value, _ := strings.Cut(field, "=")
			var err error
			fields++
			switch key {
			case "rbytes":
				err, read = addBytes(&u.Read, value), true
				u.NoRead = u.NoRead || err != nil
			case "wbytes":
				err, written = addBytes(&u.Written, value), true
				u.NoWritten = u.NoWritten || err != nil
			}
			if err != nil {
				errs = append(errs, fmt.Errorf("line %q: %s: %w", strings.TrimSpace(line), key, err))
			}
		}
		if fields > 1 && !(read && written) {
			u.NoRead, u.NoWritten = u.NoRead || !read, u.NoWritten || !written
			errs = append(errs, fmt.Errorf("line %q: want rbytes and wbytes", strings.TrimSpace(line)))
		}
	}
	return u, errors.Join(errs...)
}

// addBytes adds the number in text to *to. It returns an error if the number is
// negative or the sum overflows.
func addBytes(to *unit.Bytes, text string) error {
	n, known := numberOf(text, 1)
	if !known || n > math.MaxInt64-int64(*to) {
		return errors.New("want a number of bytes")
	}
	*to += unit.Bytes(n)
	return nil
}
