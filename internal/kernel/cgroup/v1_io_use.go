package cgroup

import (
	"errors"
	"fmt"
	"strings"
)

// v1ParseIOUse reads lines such as "8:16 Read 1459200" and "Total 1459200"
// (Documentation/admin-guide/cgroup-v1/blkio-controller.rst).
func v1ParseIOUse(text string) (IOUse, error) {
	var u IOUse
	var errs []error
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) != 3 {
			continue
		}
		var err error
		switch f[1] {
		case "Read":
			err = addBytes(&u.Read, f[2])
			u.NoRead = u.NoRead || err != nil
		case "Write":
			err = addBytes(&u.Written, f[2])
			u.NoWritten = u.NoWritten || err != nil
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("line %q: %w", strings.TrimSpace(line), err))
		}
	}
	return u, errors.Join(errs...)
}
