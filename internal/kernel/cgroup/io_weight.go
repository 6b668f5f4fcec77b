package cgroup

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"tenon.sh/tenon/internal/model/unit"
)

// IOWeight is the weight of a group against its siblings for block I/O: a
// default weight, and weights for single devices.
type IOWeight struct {
	Default int64
	Devices map[unit.Device]int64
}

// A Weigher is a kernel feature with weights for block I/O: IOCost or BFQ. It
// has its own files, and affects only the devices for which it is switched on.
type Weigher struct{ v1, v1Devices, v2 string }

var (
	// IOCost is the controller iocost: io.weight, 1 to 10000, v2 only. The file
	// io.cost.qos of the root switches it on for a device
	// (Documentation/admin-guide/cgroup-v2.rst, "io.weight", "io.cost.qos").
	IOCost = Weigher{v2: "io.weight"}
	// BFQ is the I/O scheduler bfq: io.bfq.weight (v1: blkio.bfq.weight and
	// blkio.bfq.weight_device), 1 to 1000. The sysfs file scheduler of a device
	// switches it on (Documentation/block/bfq-iosched.rst, section 4; weights
	// of single devices from Linux 5.4).
	BFQ = Weigher{v1: "blkio.bfq.weight", v1Devices: "blkio.bfq.weight_device", v2: "io.bfq.weight"}
)

// ReadIOWeight reads the weights of a group. For the root, which has none, it
// returns ErrUnsupported.
func (t *Tree) ReadIOWeight(w Weigher, path string) (IOWeight, error) {
	file, devices := w.v2, w.v2
	if t.VersionOf(block) == 1 {
		if file, devices = w.v1, w.v1Devices; file == "" {
			return IOWeight{}, fmt.Errorf("read %s in %s: cgroup v1 does not have this file: %w", w.v2, printPath(path), ErrUnsupported)
		}
	}
	v, err := read(t, block, path, file, parseIOWeight)
	if err != nil || file == devices {
		return v, err
	}
	of, err := read(t, block, path, devices, parseIOWeights)
	if errors.Is(err, ErrUnsupported) {
		return v, nil // the kernel has no weights of single devices
	}
	v.Devices = of
	return v, err
}

// WriteIOWeight writes the weights that differ from the present ones. The
// kernel refuses a weight that is out of range (EINVAL or ERANGE), and a weight
// for a device on which w is not switched on (EOPNOTSUPP, which is
// ErrUnsupported). WriteIOWeight still writes the other weights.
func (t *Tree) WriteIOWeight(w Weigher, path string, v IOWeight) error {
	now, err := t.ReadIOWeight(w, path)
	if err != nil {
		return fmt.Errorf("write I/O weight %+v: %w", v, err)
	}
	file, devices := w.v2, w.v2
	if t.VersionOf(block) == 1 {
		file, devices = w.v1, w.v1Devices
	}
	var errs []error
	if v.Default != now.Default {
		errs = append(errs, t.write(block, path, file, count(v.Default)))
	}
	errs = append(errs, eachLine(now.Devices, v.Devices, 0, func(d unit.Device, _, to int64) error {
		weight := "default"
		if to != 0 {
			weight = count(to)
		}
		return t.write(block, path, devices, d.String()+" "+weight)
	}))
	return errors.Join(errs...)
}

// parseIOWeight reads "100", or "default 100" followed by lines such as "254:0 50".
func parseIOWeight(text string) (IOWeight, error) {
	first, _, _ := strings.Cut(text, "\n")
	n, err := strconv.ParseUint(strings.TrimPrefix(first, "default "), 10, 31)
	if err != nil {
		return IOWeight{}, fmt.Errorf("%q: want a weight, or default and a weight", first)
	}
	v := IOWeight{Default: int64(n)}
	if strings.HasPrefix(first, "default ") {
		v.Devices, err = parseIOWeights(text)
	}
	return v, err
}

func parseIOWeights(text string) (map[unit.Device]int64, error) { return parseDevices(text, oneCount) }

// IOCostDevices reads io.cost.qos of the root: for each device that iocost
// knows, whether iocost is on. On v1 the map is empty.
func (t *Tree) IOCostDevices() (map[unit.Device]bool, error) {
	if t.VersionOf(block) == 1 {
		return nil, nil
	}
	return read(t, block, "", "io.cost.qos", func(text string) (map[unit.Device]bool, error) {
		on, err := parseDevices(text, func(words []string) (bool, error) {
			for _, w := range words {
				if w == "enable=1" {
					return true, nil
				}
			}
			return false, nil
		})
		return on, err
	})
}
