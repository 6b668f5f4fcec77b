package run

import (
	"errors"
	"fmt"

	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/lab/testbed"
	"tenon.sh/tenon/internal/lab/work"
)

// A keptService is a service that is not restarted between runs
// (--keep-service). It runs from the first run that needs it to the end of the
// experiment.
type keptService struct {
	process *testbed.Process
	self    *work.SelfDriven
	service work.Service
}

// end ends the service.
func (k *keptService) end() {
	k.self.Close()
	k.service.Stop(k.process)
}

// keepService leaves the service running after a run, if the experiment keeps
// services. If it returns false, no service is kept, and all cgroups can be removed.
func (st *runSetUp) keepService() bool {
	b := st.b
	if !b.Workloads.Keep {
		return false
	}
	if b.kept == nil && st.nginx != nil {
		k := &keptService{st.nginx, st.self, b.service}
		b.kept = k
		b.Undo = append(b.Undo, func() error { k.end(); return nil })
	}
	return b.kept != nil
}

// canKeep returns an error for each mode that cannot use the kept service. Such
// a mode starts the service outside of its cgroup, or puts a vendor's mark on it.
func canKeep(modes []report.Mode) error {
	var faults []error
	for _, m := range modes {
		switch t := m.Spec(); {
		case t.Sessions:
			faults = append(faults, fmt.Errorf("--keep-service: mode %s starts the service outside of its cgroup: leave one of them out", m))
		case m == report.TenonVendor:
			faults = append(faults, fmt.Errorf("--keep-service: mode %s marks the service: leave one of them out", m))
		}
	}
	return errors.Join(faults...)
}
