package sim

import (
	"strconv"
	"syscall"

	"tenon.sh/tenon/internal/machine/knob"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

const cpusetFiles = "cpuset.cpus cpuset.mems"

// list returns the set of CPUs or memory nodes to write. It returns an empty
// set for an invalid text, which another rule refuses.
func (o op) list() unit.CPUSet {
	s, _ := unit.ParseCPUSet(o.text)
	return s
}

func cpusetRules() []rule {
	return []rule{
		{
			name: "a text that is not a CPU list is refused", operation: "write", files: cpusetFiles,
			refuse: func(o op) syscall.Errno {
				_, err := unit.ParseCPUSet(o.text)
				return refuseIf(err != nil, syscall.EINVAL)
			},
		},
		{
			name: "a CPU list reads back in its shortest form", files: cpusetFiles,
			settle: func(o op) string { return o.list().String() },
		},
		{
			name: "a CPU that does not exist is refused", operation: "write", files: "cpuset.cpus",
			refuse: func(o op) syscall.Errno { return refuseIf(!o.n.topology.All().Contains(o.list()), syscall.ERANGE) },
		},
		{
			name: "a memory node that does not exist is refused", operation: "write", files: "cpuset.mems",
			refuse: func(o op) syscall.Errno { return refuseIf(!o.n.memoryNodes().Contains(o.list()), syscall.EINVAL) },
		},
		{
			name: "a child's CPUs outside its parent's are refused", version: 1, operation: "write", files: cpusetFiles,
			refuse: func(o op) syscall.Errno {
				parent := o.n.groups[o.path.Parent()].set(o.file)
				return refuseIf(!parent.Contains(o.list()), syscall.EACCES)
			},
		},
		{
			name: "a parent cannot lose CPUs that a child has", version: 1, operation: "write", files: cpusetFiles,
			refuse: func(o op) syscall.Errno {
				for _, child := range o.n.children(o.path) {
					if !o.list().Contains(o.n.groups[child].set(o.file)) {
						return syscall.EBUSY
					}
				}
				return 0
			},
		},
		{
			name: "no task enters a group without CPUs", version: 1, operation: "attach",
			refuse: func(o op) syscall.Errno {
				return refuseIf(o.g != nil && (o.g.set("cpuset.cpus").Empty() || o.g.set("cpuset.mems").Empty()), syscall.ENOSPC)
			},
		},
		{
			name: "a group with tasks keeps a CPU and a memory node", operation: "write", files: cpusetFiles,
			refuse: func(o op) syscall.Errno {
				had := !o.n.groups[o.path].set(o.file).Empty()
				return refuseIf(had && o.list().Empty() && o.n.tasksIn(o.path, o.n.version == 2) > 0, syscall.ENOSPC)
			},
		},
		{
			name: "the effective CPUs follow the parent", version: 2,
			derive: func(own, parent unit.CPUSet) unit.CPUSet {
				if both := own.Intersect(parent); !both.Empty() {
					return both
				}
				return own
			},
		},
		{
			name: "a set without CPUs of the parent means the parent's CPUs", version: 2,
			derive: func(own, parent unit.CPUSet) unit.CPUSet {
				if !own.Empty() && own.Intersect(parent).Empty() {
					return parent
				}
				return own
			},
		},
		{
			name: "an empty CPU set means the parent's CPUs", version: 2,
			derive: func(own, parent unit.CPUSet) unit.CPUSet {
				if own.Empty() {
					return parent
				}
				return own
			},
		},
	}
}

func memoryRules() []rule {
	roundDown := func(o op) string {
		b, err := strconv.ParseInt(o.text, 10, 64)
		if err != nil {
			return o.text
		}
		return (unit.Bytes(b) / pageSize * pageSize).String()
	}
	return []rule{
		{
			name: "no memory limit reads as the largest whole page", version: 1, files: "memory.limit_in_bytes",
			settle: func(o op) string {
				if o.text == "-1" {
					return knob.NoLimitV1.String()
				}
				return o.text
			},
		},
		{
			name: "memory limits are rounded down to pages", files: "memory.limit_in_bytes memory.max " + numberFiles(func(l node.LimitFile) bool { return l.Bytes }),
			settle: roundDown,
		},
		{
			name: "memory protection is rounded down to pages", version: 2, files: "memory.min memory.low memory.high",
			settle: roundDown,
		},
		{
			name: "a memory limit below what is in use is refused", version: 1, operation: "write", files: "memory.limit_in_bytes",
			refuse: func(o op) syscall.Errno {
				b, _ := strconv.ParseInt(o.text, 10, 64)
				return refuseIf(b >= 0 && unit.Bytes(b) < o.n.memoryOf(o.path), syscall.EBUSY)
			},
		},
		{
			name: "a negative or huge number of tasks is refused", operation: "write", files: "pids.max",
			refuse: func(o op) syscall.Errno {
				v, err := strconv.ParseInt(o.text, 10, 64)
				return refuseIf(err == nil && (v < 0 || v > maxPIDs), syscall.EINVAL)
			},
		},
	}
}

// maxPIDs is PID_MAX_LIMIT of 64-bit kernels (include/linux/threads.h).
const maxPIDs = 4 << 20
