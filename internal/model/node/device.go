package node

import "tenon.sh/tenon/internal/model/unit"

// A BlockDevice is a block device of the node. Devices appear and disappear while the
// node runs, so Tenon looks up a device name of the configuration in every snapshot.
type BlockDevice struct {
	// Name is the name in the kernel: "vda", "nvme0n1p2", "dm-0".
	Name string      `json:"name"`
	ID   unit.Device `json:"id"`
	// Disk is the disk to which a partition belongs. For a device that is not a
	// partition, it equals ID. The kernel counts and limits the I/O of whole disks only.
	Disk unit.Device `json:"disk"`
	// Mapped is the name in the device mapper: "vg0-data". It is empty for
	// devices that are not mapped.
	Mapped string `json:"mapped,omitempty"`
	// Below lists the devices that store the data of a mapped device.
	Below []unit.Device `json:"below,omitempty"`
	// Weighs is the knob that sets the weights of this device: FileIOWeight under iocost,
	// or FileBFQWeight under the I/O scheduler bfq. It is empty if neither is active.
	Weighs File `json:"weighs,omitempty"`
}
