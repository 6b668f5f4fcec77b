package proc

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
)

// fixture unpacks a txtar archive whose files lie below proc/ and sys/.
func fixture(t *testing.T, archive string) FS {
	t.Helper()
	root := t.TempDir()
	for _, f := range txtar.Parse([]byte(archive)).Files {
		path := filepath.Join(root, f.Name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, f.Data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return FS{Proc: filepath.Join(root, "proc"), Sys: filepath.Join(root, "sys")}
}

func TestStatCountsTicksOfTenMilliseconds(t *testing.T) {
	fs := fixture(t, `
-- proc/stat --
cpu  4720 1 2479 187963 549 2 97 19 0 0
cpu0 1966 0 949 94950 23 0 19 5 0 0
cpu9 2753 1 1529 93012 525 2 77 13 0 0
intr 267884 0 0
btime 1700000000
processes 9250
`)
	got, err := fs.Stat()
	if err != nil {
		t.Fatal(err)
	}
	cs := func(n int64) time.Duration { return time.Duration(n) * 10 * time.Millisecond }
	all := CPUTimes{cs(4720), cs(1), cs(2479), cs(187963), cs(549), cs(2), cs(97), cs(19)}
	if got.All != all {
		t.Errorf("all CPUs: got %+v, want %+v", got.All, all)
	}
	if busy := cs(4720 + 1 + 2479 + 2 + 97); got.All.Busy() != busy {
		t.Errorf("busy: got %v, want %v", got.All.Busy(), busy)
	}
	if total := cs(4720 + 1 + 2479 + 187963 + 549 + 2 + 97 + 19); got.All.Total() != total {
		t.Errorf("total: got %v, want %v", got.All.Total(), total)
	}
	if len(got.PerCPU) != 2 || got.PerCPU[9].Steal != cs(13) {
		t.Errorf("per CPU: %+v", got.PerCPU)
	}
	if got.BootTime != time.Unix(1700000000, 0) {
		t.Errorf("boot time %v", got.BootTime)
	}
}

func TestProgramNamesMayHoldAnything(t *testing.T) {
	for name, comm := range map[string]string{
		"plain": "cat", "space": "Web Content", "parentheses": ") R 1 (", "newline": "a\nb", "empty": "",
	} {
		t.Run(name, func(t *testing.T) {
			fs := fixture(t, "-- proc/77/stat --\n"+statLine(comm))
			got, err := fs.PIDStat(77)
			if err != nil {
				t.Fatal(err)
			}
			want := PIDStat{
				PID: 77, Comm: comm, State: 'S', PPID: 1, PGRP: 70, Session: 60,
				UserTime: 15 * tick, SystemTime: 16 * tick, ChildUserTime: 17 * tick, ChildSystemTime: 18 * tick,
				Nice: -5, NumThreads: 3, StartTime: 98188 * tick, Processor: 1, Policy: 3, MinorFaults: 100, MajorFaults: 7,
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func statLine(comm string) string {
	return "77 (" + comm + ") S 1 70 60 0 -1 4194304 100 0 7 0 15 16 17 18 15 -5 3 0 98188 3133440 392 18446744073709551615 " +
		"93902055575552 93902055595433 140735637714560 0 0 0 0 0 0 0 0 0 17 1 0 3 0 0 0 93902055611440 1 2 3 4 5 6 0\n"
}

func TestEndedProcessIsGone(t *testing.T) {
	fs := fixture(t, "-- proc/77/stat --\n"+statLine("cat")+"-- proc/77/task/78/stat --\n"+statLine("cat"))
	_, stat := fs.PIDStat(5)
	_, thread := fs.ThreadStat(77, 79)
	_, threads := fs.Threads(5)
	_, cgroup := fs.Cgroup(5)
	for name, err := range map[string]error{"stat": stat, "thread": thread, "threads": threads, "cgroup": cgroup} {
		if !errors.Is(err, ErrGone) || !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: got %v, want ErrGone with its cause", name, err)
		}
	}
}

func TestMissingFileOfALivingProcessIsNotGone(t *testing.T) {
	fs := fixture(t, "-- proc/77/stat --\n"+statLine("cat"))
	_, err := fs.SchedStat(77, 0)
	if errors.Is(err, ErrGone) || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v, want plain os.ErrNotExist", err)
	}
}

func TestSchedStatTellsRunAndDelayOfAThread(t *testing.T) {
	fs := fixture(t, `
-- proc/77/schedstat --
391451 12000 7
-- proc/77/task/78/schedstat --
1 2 3
-- proc/77/task/9/schedstat --
4 5 6
`)
	main, err := fs.SchedStat(77, 0)
	if want := (SchedStat{391451, 12000, 7}); err != nil || main != want {
		t.Errorf("main thread: got %+v, %v, want %+v", main, err, want)
	}
	thread, err := fs.SchedStat(77, 78)
	if want := (SchedStat{1, 2, 3}); err != nil || thread != want {
		t.Errorf("thread: got %+v, %v, want %+v", thread, err, want)
	}
	tids, err := fs.Threads(77)
	if err != nil || !slices.Equal(tids, []int{9, 78}) {
		t.Errorf("threads: got %v, %v, want them ascending by number", tids, err)
	}
}

func TestMemoryOfTheNodeIsInBytes(t *testing.T) {
	fs := fixture(t, `
-- proc/meminfo --
MemTotal:       24684084 kB
MemFree:        23988048 kB
MemAvailable:   24192936 kB
HugePages_Total:       0
-- proc/vmstat --
nr_free_pages 6019166
pgmajfault 1374
`)
	got, err := fs.MemInfo()
	want := MemInfo{Total: 24684084 << 10, Free: 23988048 << 10, Available: 24192936 << 10}
	if !got.Unread.Lack("SwapFree") || got.Unread.Lack("MemTotal", "MemFree", "MemAvailable") {
		t.Errorf("not read: %v", got.Unread)
	}
	if got.Unread = nil; err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	vm, err := fs.VMStat()
	if err != nil || vm["pgmajfault"] != 1374 {
		t.Errorf("got %v, %v", vm, err)
	}
}

func TestNodePressureIsReadByResource(t *testing.T) {
	fs := fixture(t, `
-- proc/pressure/memory --
some avg10=0.00 avg60=0.00 avg300=0.00 total=42
full avg10=0.00 avg60=0.00 avg300=0.00 total=0
`)
	p, err := fs.Pressure("memory")
	if err != nil || p.Some.Total != 42*time.Microsecond {
		t.Errorf("got %+v, %v", p, err)
	}
	if _, err := fs.Pressure("irq"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("irq: got %v, want os.ErrNotExist", err)
	}
}

func TestHypervisorShowsInTheFlags(t *testing.T) {
	fs := fixture(t, `
-- proc/cpuinfo --
processor	: 0
model name	: Some CPU @ 2.60GHz
flags		: fpu hypervisor avx512f

processor	: 1
model name	: Other CPU
flags		: fpu
`)
	got, err := fs.CPUInfo()
	want := CPUInfo{Model: "Some CPU @ 2.60GHz", Flags: []string{"fpu", "hypervisor", "avx512f"}}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Error(err, diff)
	}
	if !got.Virtual() || got.Has("avx") {
		t.Error("want Virtual, and no match for a part of a flag's name")
	}
}

func TestPlaceInEachHierarchyIsToldApart(t *testing.T) {
	fs := fixture(t, `
-- proc/self/cgroup --
3:cpu,cpuacct:/system.slice
1:name=systemd:/a:b
0::/
`)
	got, err := fs.SelfCgroup()
	want := []CgroupEntry{
		{3, []string{"cpu", "cpuacct"}, "/system.slice"},
		{1, []string{"name=systemd"}, "/a:b"},
		{0, nil, "/"},
	}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Error(err, diff)
	}
}

func TestParsersNameWhatTheyCouldNotRead(t *testing.T) {
	stat := func(s string) error { got, err := parseStat(s); return errors.Join(err, got.Unread.Cause()) }
	pidStat := func(s string) error { _, err := parsePIDStat(s); return err }
	schedStat := func(s string) error { _, err := parseSchedStat(s); return err }
	memInfo := func(s string) error { _, err := parseMemInfo(s); return err }
	vmStat := func(s string) error { _, err := parseVMStat(s); return err }
	cgroup := func(s string) error { _, err := parseCgroup(s); return err }
	tests := map[string]struct {
		parse      func(string) error
		text, want string
	}{
		"stat without a total":          {stat, "cpu0 1 2 3 4 5 6 7 8\n", "no line"},
		"stat with a short line":        {stat, "cpu 1 2 3\n", "3 fields"},
		"stat with a huge CPU":          {stat, "cpu99999 1 2 3 4 5 6 7 8\n", "cpu99999"},
		"stat with a negative time":     {stat, "cpu 1 2 3 4 5 6 7 -8\n", `"-8"`},
		"pid stat without parentheses":  {pidStat, "77 cat S 1\n", "parentheses"},
		"pid stat cut short":            {pidStat, "77 (cat) S 1 2\n", "5 fields"},
		"pid stat with a word":          {pidStat, strings.Replace(statLine("cat"), "98188", "soon", 1), `"soon"`},
		"schedstat with two numbers":    {schedStat, "1 2\n", "3 numbers"},
		"schedstat with a negative one": {schedStat, "1 -2 3\n", "3 numbers"},
		"meminfo without total":         {memInfo, "MemFree: 1 kB\n", "no MemTotal"},
		"meminfo with another unit":     {memInfo, "MemTotal: 1 MB\n", "kB"},
		"vmstat without a number":       {vmStat, "pgfault\n", "pgfault"},
		"cgroup without a path":         {cgroup, "1:cpu\n", "1:cpu"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if err := tc.parse(tc.text); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want one with %q", err, tc.want)
			}
		})
	}
}

func TestLongFilesAreReadWhole(t *testing.T) {
	fs := fixture(t, "-- proc/vmstat --\n"+strings.Repeat("pgfault 1\n", 20000)+"last 7\n")
	vm, err := fs.VMStat()
	if err != nil || vm["last"] != 7 {
		t.Errorf("last counter: got %d, %v, want 7", vm["last"], err)
	}
}

// TestRunningKernelIsUnderstood reads the files of the running kernel with
// every reader.
func TestRunningKernelIsUnderstood(t *testing.T) {
	fs := Default()
	self := os.Getpid()
	stat, err1 := fs.Stat()
	pid, err2 := fs.PIDStat(self)
	threads, err3 := fs.Threads(self)
	mem, err4 := fs.MemInfo()
	_, err5 := fs.VMStat()
	_, err6 := fs.CPUInfo()
	boot, err7 := fs.BootID()
	release, err8 := fs.KernelRelease()
	_, err9 := fs.SelfCgroup()
	topology, err10 := fs.Topology()
	pids, err11 := fs.PIDs()
	if err := errors.Join(err1, err2, err3, err4, err5, err6, err7, err8, err9, err10, err11); err != nil {
		t.Fatal(err)
	}
	switch {
	case stat.All.Total() == 0 || len(stat.PerCPU) != len(topology):
		t.Errorf("stat has %d CPUs, but topology has %d", len(stat.PerCPU), len(topology))
	case pid.PPID != os.Getppid() || pid.NumThreads < 1 || pid.StartTime == 0:
		t.Errorf("own stat %+v", pid)
	case !slices.Contains(threads, self) || !slices.Contains(pids, self):
		t.Errorf("own process not among threads %v and pids %v", threads, pids)
	case mem.Total < 16<<20 || mem.Available > mem.Total:
		t.Errorf("memory %+v", mem)
	case len(boot) != 36 || release == "":
		t.Errorf("boot id %q, release %q", boot, release)
	}
	for _, c := range topology {
		if !c.Siblings.Has(c.ID) || c.L3 > int(c.ID) {
			t.Errorf("topology of CPU %d: %+v", c.ID, c)
		}
	}
	if _, err := fs.SchedStat(self, 0); err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

func TestKilledProcessIsGoneOnTheRunningKernel(t *testing.T) {
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Skipf("cannot start sleep: %v", err)
	}
	fs := Default()
	if s, err := fs.PIDStat(cmd.Process.Pid); err != nil || s.PPID != os.Getpid() {
		t.Errorf("child: %+v, %v", s, err)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if _, err := fs.PIDStat(cmd.Process.Pid); !errors.Is(err, ErrGone) {
		t.Errorf("after the end: got %v, want ErrGone", err)
	}
}
