package cachectl

import (
	"slices"

	"tenon.sh/tenon/internal/kernel/resctrl"
)

// MountCommand is the command with which an owner prepares the division of
// caches. Tenon itself does not mount resctrl, because the mount changes the
// machine for all programs, and its options bind all users.
const MountCommand = "mount -t resctrl resctrl /sys/fs/resctrl"

// Mounted returns the resctrl file system. If it has not found one before, it
// looks again. If there is none, it returns resctrl.ErrNotMounted.
func (c *Groups) Mounted() (*resctrl.FS, error) {
	c.mount.Lock()
	fs := c.fs
	c.mount.Unlock()
	if fs != nil {
		return fs, nil
	}
	return c.findMount()
}

// findMount looks for the resctrl file system. Since the last look, it may have
// been mounted, unmounted, or mounted again with other options.
func (c *Groups) findMount() (*resctrl.FS, error) {
	c.mount.Lock()
	defer c.mount.Unlock()
	fs, err := resctrl.Find(c.proc)
	if err != nil {
		c.fs = nil
		return nil, err
	}
	if c.fs == nil || c.fs.Root != fs.Root || !slices.Equal(c.fs.Options, fs.Options) {
		c.fs = fs // otherwise c keeps the old one with its lock
	}
	return c.fs, nil
}
