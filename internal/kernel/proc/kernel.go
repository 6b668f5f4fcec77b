package proc

// BootID reads /proc/sys/kernel/random/boot_id: a UUID that changes at each
// boot. All containers show the same one.
func (fs FS) BootID() (string, error) { return procFile(fs, "sys/kernel/random/boot_id", word) }

// KernelRelease reads /proc/sys/kernel/osrelease, as uname -r prints it.
func (fs FS) KernelRelease() (string, error) { return procFile(fs, "sys/kernel/osrelease", word) }
