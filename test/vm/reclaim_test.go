package vm

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// reclaimScene runs batch work that has read 200 MiB once, and reads 16 MiB again and
// again, beside a service. A file on tmpfs leaves about 100 MiB of memory free. Then
// tenond reclaims for three minutes of the guest.
const reclaimScene = `
	set -e
	dd if=/dev/zero of=/disk/cold bs=1M count=200
	dd if=/dev/zero of=/disk/hot bs=1M count=16
	sync; echo 3 >/proc/sys/vm/drop_caches
	cd /sys/fs/cgroup; mkdir web job
	sh -c 'echo $$ >web/cgroup.procs; exec sleep 100000' & web=$!
	sh -c 'echo $$ >job/cgroup.procs; cat /disk/cold >/dev/null; : >/tmp/ready; while :; do cat /disk/hot >/dev/null; sleep 1; done' & job=$!
	until [ -e /tmp/ready ]; do sleep 1; done
	sleep 3
	free() { sed -n 's/^MemFree: *\([0-9]*\) kB/\1/p' /proc/meminfo; }
	stat() { sed -n "s/^$1 //p" job/memory.stat; }
	show() { echo "$1 free $(free) file $(stat file) refaults $(stat workingset_refault_file) stalled $(sed -n 's/^some.*total=//p' job/memory.pressure)"; }
	mkdir /ballast; mount -t tmpfs -o size=95% tmpfs /ballast
	dd if=/dev/zero of=/ballast/file bs=1M count=$(($(free) / 1024 - 100))
	sleep 1; show before
	cat >/tmp/tenond.yaml <<END
apiVersion: tenon.sh/v1alpha1
kind: NodeConfig
rules:
- {name: web, class: LS, cgroups: [web]}
- {name: job, class: BE, cgroups: [job]}
resource-qos-config: {policies: {memoryReclaimFreePercent: 50}}
END
	tenond --config /tmp/tenond.yaml --metrics 127.0.0.1:9400 2>/tmp/tenond.log & agent=$!
	sleep 180
	show after
	tenon explain job
	wget -q -O - http://127.0.0.1:9400/metrics | grep 'reclaim' | grep -v '^#'
	tenon capture /tmp/record
	tenon replay /tmp/record
	kill $agent; wait $agent || true
	kill -9 $web $job
	for group in web job; do until rmdir $group; do sleep 1; done; done
	umount /disk /ballast
`

// TestReclaimOnCgroupV2 runs tenond with memoryReclaimFreePercent on a kernel with
// memory.reclaim: the cold cache of batch work goes, and its hot set stays. It also runs
// the tests of the write itself.
func TestReclaimOnCgroupV2(t *testing.T) {
	oneOf(t, shaped, t.Name())
	t.Parallel()
	m := withFileSystem(t, countInstructions(t, machine(t)), 300)
	m.Topology = Topology{Sockets: 1, CoresPerSocket: 2, ThreadsPerCore: 1}
	m.MiBPerNode = 1024
	image := withTenon(t, new(Image))
	if err := image.File("/usr/bin/tenond", build(t, []string{"build"}, "./cmd/tenond")); err != nil {
		t.Fatal(err)
	}
	tests := testsOf(t, image, "internal/kernel/cgroup", "-test.run=^TestV2Reclaim")
	tests.Env = append(tests.Env, "TMPDIR=/disk") // tmpfs has no page cache that could be reclaimed
	scene := Shell("reclaim", reclaimScene)
	scene.Timeout = 8 * time.Minute
	report := runChecked(t, m, image, 12*time.Minute, checkReclaim,
		Shell("disk", "mkdir /disk && mount -t ext4 /dev/nvme0n1 /disk"), tests, scene, Shell("log", "cat /tmp/tenond.log"))
	if o, ran := report.Outcome(tests.Name); ran {
		t.Run(o.Name, func(t *testing.T) { judge(t, report, o) })
	}
}

func checkReclaim(t *findings, report Report) {
	o, _ := report.Outcome("reclaim")
	log, _ := report.Outcome("log")
	t.Logf("%s\n%s", o.Output, log.Output)
	if o.Exit != 0 {
		t.Errorf("the scene ended with %d", o.Exit)
	}
	type state struct{ free, file, refaults, stalled int64 }
	states := map[string]state{}
	for line := range strings.Lines(o.Output) {
		var name string
		var s state
		if n, _ := fmt.Sscanf(line, "%s free %d file %d refaults %d stalled %d", &name, &s.free, &s.file, &s.refaults, &s.stalled); n == 5 {
			states[name] = s
		}
	}
	before, after := states["before"], states["after"]
	const mib = 1 << 20
	if before.file < 200*mib || after.file > 64*mib {
		t.Errorf("page cache of the batch work: %d MiB before and %d MiB after, want 200 and more, then at most 64", before.file/mib, after.file/mib)
	}
	if back := (after.refaults - before.refaults) * 4096; back > 32*mib {
		t.Errorf("the batch work read %d MiB back, want less than twice its hot set", back/mib)
	}
	if stalled := time.Duration(after.stalled-before.stalled) * time.Microsecond; stalled > 18*time.Second {
		t.Errorf("the batch work waited %v of three minutes for memory", stalled)
	}
	for _, want := range []string{
		"reclaim    asked for ", `tenon_workload_reclaim_bytes_total{amount="got",class="BE",namespace="",pod="",workload="job"} `,
		"Replay: every want and every step is the same.",
	} {
		if !strings.Contains(o.Output, want) {
			t.Errorf("no %q in the output", want)
		}
	}
}
