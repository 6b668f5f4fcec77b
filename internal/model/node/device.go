package node

import "tenon.sh/tenon/internal/model/unit"

// A BlockDevice is a block device of the node. Names in a configuration are
// resolved with it. Devices appear and disappear while the node is up.
type BlockDevice struct {
	// Name is the name in the kernel: "vda", "nvme0n1p2", "dm-0".
	Name string      `json:"name"`
	ID   unit.Device `json:"id"`
	// Disk is the whole disk of a partition, and ID for every other device. The
	// kernel counts and limits I/O of whole disks only.
	Disk unit.Device `json:"disk"`
	// Mapped is the name in the device mapper: "vg0-data". It is empty for
	// devices that are not mapped.
	Mapped string `json:"mapped,omitempty"`
	// Below lists the devices on which a mapped device lies.
	Below []unit.Device `json:"below,omitempty"`
	// Weighs is the knob whose weights affect the device: FileIOWeight under
	// iocost, FileBFQWeight under the I/O scheduler bfq; empty: no weights do.
	Weighs File `json:"weighs,omitempty"`
}
