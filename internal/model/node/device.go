package node

import "tenon.sh/tenon/internal/model/unit"

// A BlockDevice is a block device of the node. The names of devices in a
// configuration are looked up in the list of devices. Devices appear and
// disappear while the node runs.
type BlockDevice struct {
	// Name is the name in the kernel: "vda", "nvme0n1p2", "dm-0".
	Name string      `json:"name"`
	ID   unit.Device `json:"id"`
	// Disk is the whole disk to which a partition belongs. For every other
	// device it is ID. The kernel counts and limits I/O of whole disks only.
	Disk unit.Device `json:"disk"`
	// Mapped is the name in the device mapper: "vg0-data". It is empty for
	// devices that are not mapped.
	Mapped string `json:"mapped,omitempty"`
	// Below lists the devices that store the data of a mapped device.
	Below []unit.Device `json:"below,omitempty"`
	// Weighs is the knob whose weights affect the device: FileIOWeight under iocost,
	// FileBFQWeight under the I/O scheduler bfq; empty: no weight affects it.
	Weighs File `json:"weighs,omitempty"`
}
