package proc

import (
	"path/filepath"

	"tenon.sh/tenon/internal/model/unit"
)

// Pressure reads /proc/pressure/RESOURCE, where RESOURCE is cpu, memory, io or
// (Linux 6.1) irq (Documentation/accounting/psi.rst). Without PSI it returns
// os.ErrNotExist (compiled out) or ENOTSUP (switched off).
func (fs FS) Pressure(resource string) (unit.Pressure, error) {
	return procFile(fs, filepath.Join("pressure", resource), unit.ParsePressure)
}
