package cachectl

import (
	"slices"

	"tenon.sh/tenon/internal/kernel/resctrl"
)

// MountCommand mounts resctrl. The owner of the machine must run it before
// caches can be divided. Tenon does not do this, because the mount options
// affect all programs of the machine.
const MountCommand = "mount -t resctrl resctrl /sys/fs/resctrl"

// Mounted returns the resctrl file system. If Tenon has not found it yet, Mounted
// looks again. If it is not mounted, Mounted returns resctrl.ErrNotMounted.
func (c *Groups) Mounted() (*resctrl.FS, error) {
	c.mount.Lock()
	fs := c.fs
	c.mount.Unlock()
	if fs != nil {
		return fs, nil
	}
	return c.findMount()
}

// findMount looks for the resctrl file system. It does so again each time,
// because a user may mount it, unmount it, or change the mount options.
func (c *Groups) findMount() (*resctrl.FS, error) {
	c.mount.Lock()
	defer c.mount.Unlock()
	fs, err := resctrl.Find(c.proc)
	if err != nil {
		c.fs = nil
		return nil, err
	}
	if c.fs == nil || c.fs.Root != fs.Root || !slices.Equal(c.fs.Options, fs.Options) {
		c.fs = fs // for the same mount, c keeps the old FS, which holds a lock
	}
	return c.fs, nil
}
