package run

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"tenon.sh/tenon/internal/kernel/proc"
	"tenon.sh/tenon/internal/kernel/task"
	"tenon.sh/tenon/internal/lab/colocation"
	"tenon.sh/tenon/internal/lab/labtest"
	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/lab/work"
)

// A startedProgram is a program that the lab started, as /proc shows it.
type startedProgram struct {
	name        string
	nice        int
	policy      task.Policy
	own         bool // it leads a session
	cpu, memory bool // it was in the root cgroups
}

// observe watches the children of this process until ctx ends.
func observe(ctx context.Context) <-chan map[startedProgram]bool {
	seen, out := map[startedProgram]bool{}, make(chan map[startedProgram]bool, 1)
	fs := proc.Default()
	go func() {
		for ctx.Err() == nil {
			pids, _ := fs.PIDs()
			for _, pid := range pids {
				s, err := fs.PIDStat(pid)
				if err != nil || s.PPID != os.Getpid() || s.Comm != "nginx" && s.Comm != "ffmpeg" {
					continue
				}
				text, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cgroup"))
				in := func(controller string) bool {
					for line := range strings.Lines(string(text)) {
						if f := strings.SplitN(strings.TrimSpace(line), ":", 3); len(f) == 3 && (f[1] == "" || strings.Contains(","+f[1]+",", ","+controller+",")) && f[2] != "/" {
							return false
						}
					}
					return true
				}
				seen[startedProgram{s.Comm, s.Nice, task.Policy(s.Policy), s.Session == pid, in("cpu"), in("memory")}] = true
			}
			time.Sleep(20 * time.Millisecond)
		}
		out <- seen
	}()
	return out
}

func TestModesWithoutCgroupsStartAsLoginsDo(t *testing.T) {
	inTurn(t)
	labtest.RequireReal(t, work.NGINXProgram, work.FFmpegProgram)
	t.Setenv("TMPDIR", labtest.OpenDir(t))
	c := smallExperiment(t, report.Plain, report.Nice, report.SchedIdle)
	ctx, stop := context.WithCancel(t.Context())
	found := observe(ctx)
	o, err := Run(t.Context(), c)
	stop()
	if err != nil {
		t.Fatal(err)
	}
	seen := <-found
	raw, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
	if err != nil {
		t.Fatal(err)
	}
	own := 20 - raw // the nice value of this test: programs inherit it
	for _, want := range []startedProgram{
		{"nginx", own, task.Normal, true, true, true},
		{"ffmpeg", own, task.Normal, true, true, true},
		{"ffmpeg", 19, task.Normal, true, true, true},
		{"ffmpeg", own, task.Idle, true, true, true},
	} {
		if !seen[want] {
			t.Errorf("no %+v among %+v", want, seen)
		}
	}
	e, runs, err := report.Load[colocation.Experiment, colocation.Run](o.Dir)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(strings.Join(e.Caveats, "\n"), "in the root cgroups") {
		t.Errorf("caveats %q", e.Caveats)
	}
	for _, r := range runs {
		if r.LSCPU <= 0 || r.BECPU <= 0.1 || r.Timeslices == 0 || r.Frames <= 0 {
			t.Errorf("%s: %v CPUs of the service, %v of the batch work, %d timeslices, %v frames", r.Mode, r.LSCPU, r.BECPU, r.Timeslices, r.Frames)
		}
	}
}
