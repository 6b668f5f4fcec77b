package proc

import (
	"path/filepath"

	"tenon.sh/tenon/internal/model/unit"
)

// Pressure reads /proc/pressure/RESOURCE (Documentation/accounting/psi.rst).
// RESOURCE is cpu, memory, io or, since Linux 6.1, irq. Pressure returns
// os.ErrNotExist on a kernel that was built without PSI, and ENOTSUP if PSI
// is switched off.
func (fs FS) Pressure(resource string) (unit.Pressure, error) {
	return procFile(fs, filepath.Join("pressure", resource), unit.ParsePressure)
}
