package task

import (
	"fmt"

	"golang.org/x/sys/unix"

	"tenon.sh/tenon/internal/model/unit"
)

// Affinity reads the CPUs that a thread may use (sched_getaffinity(2)). These
// are the CPUs of its mask that are online and in its cpuset.
func Affinity(tid int) (unit.CPUSet, error) {
	var mask unix.CPUSet
	if err := unix.SchedGetaffinity(tid, &mask); err != nil {
		return unit.CPUSet{}, fmt.Errorf("read affinity of thread %d: %w", tid, cause(err))
	}
	var cpus unit.CPUSet
	for c := range unit.MaxCPUs {
		if mask.IsSet(c) {
			cpus = cpus.With(unit.CPU(c))
		}
	}
	return cpus, nil
}

// SetAffinity binds a thread to CPUs (sched_setaffinity(2)). The kernel ignores
// CPUs outside the thread's cpuset. If no other CPU is given, it returns
// EINVAL.
func SetAffinity(tid int, cpus unit.CPUSet) error {
	var mask unix.CPUSet
	for c := range cpus.All() {
		mask.Set(int(c))
	}
	if err := unix.SchedSetaffinity(tid, &mask); err != nil {
		return fmt.Errorf("set affinity %q on thread %d: %w", cpus, tid, cause(err))
	}
	return nil
}
