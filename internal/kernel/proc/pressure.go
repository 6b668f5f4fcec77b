package proc

import (
	"path/filepath"

	"tenon.sh/tenon/internal/model/unit"
)

// Pressure reads /proc/pressure/RESOURCE, where resource is cpu, memory, io
// or (Linux 6.1) irq (Documentation/accounting/psi.rst). It fails with
// os.ErrNotExist or ENOTSUP where PSI is compiled out or switched off.
func (fs FS) Pressure(resource string) (unit.Pressure, error) {
	return procFile(fs, filepath.Join("pressure", resource), unit.ParsePressure)
}
