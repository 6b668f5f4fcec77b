package cgroup

import (
	"errors"
	"fmt"
	"math"

	"tenon.sh/tenon/internal/model/unit"
)

// v1ReadIOMax reads the four files of limits. Their lines look like "254:0
// 1048576" (Documentation/admin-guide/cgroup-v1/blkio-controller.rst,
// "Throttling/Upper limit policy").
func (t *Tree) v1ReadIOMax(path string) (map[unit.Device]IOLimits, error) {
	all := map[unit.Device]IOLimits{}
	for _, r := range rates {
		lines, err := read(t, block, path, r.v1File, v1ParseRates)
		if err != nil {
			return nil, err
		}
		for d, n := range lines {
			l, has := all[d]
			if !has {
				l = noIOLimits
			}
			*r.of(&l) = n
			all[d] = l
		}
	}
	return all, nil
}

func v1ParseRates(text string) (map[unit.Device]int64, error) { return parseDevices(text, oneCount) }

// oneCount reads a line that consists of a single number.
func oneCount(words []string) (int64, error) {
	if len(words) != 1 {
		return 0, fmt.Errorf("%q: want one number", words)
	}
	return parseCount(words[0])
}

// v1ChangeIOMax writes the limits that differ. The value 0 removes a limit. The
// kernel stores only the low 32 bits of a limit on operations. If these bits
// are 0, all I/O stops (block/blk-throttle.c: tg_set_conf).
func (t *Tree) v1ChangeIOMax(path string, d unit.Device, from, to IOLimits) error {
	var errs []error
	for i, r := range rates {
		n := *r.of(&to)
		if n == *r.of(&from) {
			continue
		}
		operations := i >= 2
		if n == NoIORate || operations && n >= math.MaxUint32 {
			n = 0
		}
		errs = append(errs, t.write(block, path, r.v1File, fmt.Sprintf("%v %d", d, n)))
	}
	return errors.Join(errs...)
}
