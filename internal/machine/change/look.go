package change

import (
	"runtime"
	"sync"
	"sync/atomic"

	"tenon.sh/tenon/internal/model/node"
)

// A Found is the result of reading one knob.
type Found struct {
	Inode    uint64 // of its cgroup or control group
	InodeErr error
	Value    node.Value
	Err      error // of the value
}

// Look reads several knobs and the inodes of their groups, on all CPUs at once.
func Look(c *Knobs, knobs []node.Knob) []Found {
	all := make([]Found, len(knobs))
	onAllCPUs(len(knobs), func(i int) {
		f, k := &all[i], knobs[i]
		f.Inode, f.InodeErr = c.Inode(k)
		f.Value, f.Err = c.table.Read(k)
	})
	return all
}

// onAllCPUs calls a function for each number below n, on all CPUs at once.
func onAllCPUs(n int, do func(i int)) {
	var next atomic.Int64
	var all sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), n) {
		all.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				do(i)
			}
		})
	}
	all.Wait()
}
