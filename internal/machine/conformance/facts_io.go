package conformance

import (
	"errors"
	"fmt"
	"syscall"

	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

var errNoDisk = errors.New("this node has no disk without I/O weights")

// disk returns a whole disk of the node that has no I/O weights. Checks may set
// any limit on it, because the fact's cgroup does no I/O.
func (b *Bench) disk() (unit.Device, error) {
	s, err := b.Snapshot(b.ctx)
	if err != nil {
		return unit.Device{}, err
	}
	for _, d := range s.Devices {
		if d.Disk == d.ID && d.Mapped == "" && d.Weighs == "" {
			return d.ID, nil
		}
	}
	return unit.Device{}, errNoDisk
}

// checkOnDisk returns a check that calls check with the device number of a disk.
func checkOnDisk(check func(b *Bench, disk string) error) func(*Bench) error {
	return func(b *Bench) error {
		d, err := b.disk()
		if err != nil {
			return err
		}
		return check(b, d.String())
	}
}

func ioFacts() []Fact {
	return []Fact{
		{
			Name: "an I/O limit on a device that does not exist is refused", Needs: node.FeatureIOMax,
			Check: func(b *Bench) error {
				return b.mustRefuse(b.cgroup, b.readLimit(), []string{"4095:1 " + b.pick("1000", "rbps=1000")}, syscall.ENODEV)
			},
		},
		{
			Name: "an I/O limit that is not a number is refused", Needs: node.FeatureIOMax,
			Check: checkOnDisk(func(b *Bench, disk string) error {
				return b.mustRefuse(b.cgroup, b.readLimit(), []string{disk + b.pick(" much", " rbps=much"), disk + b.pick(" max", " rbps=-1")}, syscall.EINVAL)
			}),
		},
		{
			Name: "an I/O limit of 0 is refused", Version: 2, Needs: node.FeatureIOMax,
			Check: checkOnDisk(func(b *Bench, disk string) error {
				return b.mustRefuse(b.cgroup, "io.max", []string{disk + " rbps=0", disk + " wiops=0"}, syscall.ERANGE)
			}),
		},
		{
			Name: "an I/O limit that is not written stays", Version: 2, Needs: node.FeatureIOMax,
			Check: checkOnDisk(func(b *Bench, disk string) error {
				return firstOf(
					func() error {
						return b.mustBecome(b.cgroup, "io.max", disk+" rbps=1000", disk+" rbps=1000 wbps=max riops=max wiops=max")
					},
					func() error {
						return b.mustBecome(b.cgroup, "io.max", disk+" wiops=7", disk+" rbps=1000 wbps=max riops=max wiops=7")
					},
				)
			}),
		},
		{
			Name: "a limit of more operations than fit into 32 bits means no limit", Version: 2, Needs: node.FeatureIOMax,
			Check: checkOnDisk(func(b *Bench, disk string) error {
				return b.mustBecome(b.cgroup, "io.max", disk+" rbps=1000 riops=4294967295", disk+" rbps=1000 wbps=max riops=max wiops=max")
			}),
		},
		{
			Name: "a device without I/O limits has no line", Needs: node.FeatureIOMax,
			Check: checkOnDisk(func(b *Bench, disk string) error {
				return firstOf(
					func() error { return b.set(b.cgroup, b.readLimit(), disk+b.pick(" 1000", " rbps=1000")) },
					func() error { return b.mustBecome(b.cgroup, b.readLimit(), disk+b.pick(" 0", " rbps=max"), "") },
				)
			}),
		},
		{
			Name: "a weight of I/O outside 1 to 10000 is refused", Version: 2, Needs: node.FeatureIOWeight,
			Check: func(b *Bench) error {
				return b.mustRefuse(b.cgroup, "io.weight", []string{"0", "default 10001"}, syscall.EINVAL)
			},
		},
		{
			Name: "a weight of bfq outside 1 to 1000 is refused", Version: 1, Needs: node.FeatureBFQWeight,
			Check: func(b *Bench) error {
				return b.mustRefuse(b.cgroup, "blkio.bfq.weight", []string{"0", "1001"}, syscall.ERANGE)
			},
		},
		{
			Name: "a weight for a device without weights is refused", Version: 2, Needs: node.FeatureIOWeight,
			Check: checkOnDisk(func(b *Bench, disk string) error {
				return b.mustRefuse(b.cgroup, "io.weight", []string{disk + " 50"}, syscall.EOPNOTSUPP)
			}),
		},
		{
			Name: "a weight for a device without weights is refused", Version: 1, Needs: node.FeatureBFQWeight,
			Check: checkOnDisk(func(b *Bench, disk string) error {
				return b.mustRefuse(b.cgroup, "blkio.bfq.weight_device", []string{disk + " 50"}, syscall.EOPNOTSUPP)
			}),
		},
		{
			Name: "a weight of I/O is that of all devices", Version: 2, Needs: node.FeatureIOWeight,
			Check: func(b *Bench) error { return b.mustBecome(b.cgroup, "io.weight", "50", "default 50") },
		},
		{
			Name: "a weight of I/O is that of all devices", Version: 1, Needs: node.FeatureBFQWeight,
			Check: func(b *Bench) error {
				return firstOf(
					func() error { return b.mustBecome(b.cgroup, "blkio.bfq.weight", "50", "50") },
					func() error { return b.mustShow(b.cgroup, "blkio.bfq.weight_device", "default 50") },
				)
			},
		},
		{
			Name: "a target of 0 means no target", Version: 2, Needs: node.FeatureIOLatency,
			Check: checkOnDisk(func(b *Bench, disk string) error {
				return firstOf(
					func() error { return b.mustBecome(b.cgroup, "io.latency", disk+" target=3000", disk+" target=3000") },
					func() error { return b.mustBecome(b.cgroup, "io.latency", disk+" target=0", "") },
				)
			}),
		},
		{Name: "I/O limits change and come back", Needs: node.FeatureIOMax, Check: ioLimitsComeBack},
	}
}

// readLimit returns the name of the file with the limit of bytes read per
// second.
func (b *Bench) readLimit() string { return b.pick("blkio.throttle.read_bps_device", "io.max") }

// ioLimitsComeBack writes several values of io.max, and then releases the knob.
func ioLimitsComeBack(b *Bench) error {
	disk, err := b.disk()
	if err != nil {
		return err
	}
	defer b.manage(b.cgroup)()
	k := node.Knob{Cgroup: b.cgroup, File: node.FileIOMax}
	of := func(readBPS, writeBPS, readIOPS, writeIOPS int64) node.IOMax {
		return node.IOMaxOf(map[unit.Device]node.IOLimits{disk: {ReadBPS: readBPS, WriteBPS: writeBPS, ReadIOPS: readIOPS, WriteIOPS: writeIOPS}})
	}
	const none = node.NoIORate
	first := of(1000, none, none, 1<<32)
	if err := b.want(set(b.cgroup, k.File, first)); err != nil {
		return err
	}
	// Kernels up to at least 6.12 refuse a limit of 1.
	for _, v := range []node.IOMax{first, of(2, 3, 4, 5), of(none, 1<<40, none, 7), {}, of(none, none, 5, none)} {
		if err := b.want(set(b.cgroup, k.File, v)); err != nil {
			return err
		}
		if err := b.checkSnapshot(k, v.Round(b.kernel)); err != nil {
			return err
		}
	}
	if err := b.want(release(k)); err != nil {
		return err
	}
	if err := b.checkSnapshot(k, node.IOMax{}); err != nil {
		return fmt.Errorf("released: %w", err)
	}
	return nil
}
