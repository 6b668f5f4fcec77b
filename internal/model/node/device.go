package node

import "tenon.sh/tenon/internal/model/unit"

// A BlockDevice is a block device of the node, as its name in a configuration
// is resolved. Devices come and go while the node is up.
type BlockDevice struct {
	// Name is the kernel's: "vda", "nvme0n1p2", "dm-0".
	Name string      `json:"name"`
	ID   unit.Device `json:"id"`
	// Disk is the whole disk of which a partition is a part, and otherwise ID:
	// the kernel counts and limits whole disks only.
	Disk unit.Device `json:"disk"`
	// Mapped is the name that device mapper has for it: "vg0-data". Empty for
	// all others.
	Mapped string `json:"mapped,omitempty"`
	// Below are the devices on which a mapped device lies.
	Below []unit.Device `json:"below,omitempty"`
	// Weighs is the knob whose weights act on the device: FileIOWeight under
	// iocost, FileBFQWeight under the scheduler bfq. Empty: none does.
	Weighs File `json:"weighs,omitempty"`
}
