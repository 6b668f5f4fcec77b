package host

import (
	"fmt"
	"syscall"
	"testing"

	"tenon.sh/tenon/internal/kernel/task"
	"tenon.sh/tenon/internal/machine/bescheduler"
	"tenon.sh/tenon/internal/model/node"
)

// BenchmarkIsolation measures a snapshot in two variants: without a scheduler,
// and with a scheduler to which the threads of all best-effort work belong.
// Three quarters of the workloads are best-effort. The cgroup tree consists of
// plain files.
func BenchmarkIsolation(b *testing.B) {
	for _, n := range []int{100, 1000} {
		for _, mechanism := range []string{"none", "cpu.idle", "sched_ext"} {
			b.Run(fmt.Sprintf("workloads=%d/rung=%s", n, mechanism), func(b *testing.B) {
				x := newBench(b, true)
				var all []node.Workload
				for i := range n {
					w := node.Workload{ID: node.WorkloadID(fmt.Sprintf("job-%04d", i)), Class: node.BE, ContentionRoot: "be"}
					if i%4 == 0 {
						w.Class, w.ContentionRoot = node.LS, "ls"
					}
					w.Cgroup = w.ContentionRoot.Join(string(w.ID))
					x.group(b, string(w.Cgroup))
					x.thread(b, string(w.Cgroup), task.Normal)
					all = append(all, w)
				}
				x.ManageOnly(all)
				files := []node.File{node.FileCPUWeight, node.FileCPUMax}
				if mechanism != "none" {
					files = append(files, node.FileIdentity, node.FileScheduler, node.FilePolicy, node.FileCookie)
				}
				x.Show(files)
				x.snapshot(b)
				if mechanism == "sched_ext" {
					do(b, x.set(b, policyOf("be"), node.ThreadsBE), x.set(b, bescheduler.Knob, loaded))
				}
				x.snapshot(b)
				b.ReportAllocs()
				before := cpuTime(b)
				for b.Loop() {
					x.snapshot(b)
				}
				b.ReportMetric(float64(cpuTime(b)-before)/float64(b.N), "cpu-ns/op")
			})
		}
	}
}

// cpuTime returns the CPU time of this process in nanoseconds. On a busy
// machine, this is a better measure than elapsed time.
func cpuTime(b *testing.B) int64 {
	b.Helper()
	var use syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &use); err != nil {
		b.Fatal(err)
	}
	return use.Utime.Nano() + use.Stime.Nano()
}
