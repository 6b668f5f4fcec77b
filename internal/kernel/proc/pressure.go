package proc

import (
	"path/filepath"

	"tenon.sh/tenon/internal/model/unit"
)

// Pressure reads /proc/pressure/RESOURCE (Documentation/accounting/psi.rst).
// RESOURCE is cpu, memory, io or, since Linux 6.1, irq. If the kernel was built
// without PSI, it returns os.ErrNotExist. If PSI is switched off, it returns
// ENOTSUP.
func (fs FS) Pressure(resource string) (unit.Pressure, error) {
	return procFile(fs, filepath.Join("pressure", resource), unit.ParsePressure)
}
