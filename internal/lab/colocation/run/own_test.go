package run

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"tenon.sh/tenon/internal/lab/colocation"
	"tenon.sh/tenon/internal/lab/harness"
	"tenon.sh/tenon/internal/lab/labtest"
	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/lab/testbed"
	"tenon.sh/tenon/internal/lab/work"
)

// ownExperiment returns the configuration of a short experiment whose
// workloads are not nginx and ffmpeg.
func ownExperiment(t *testing.T, w work.Workloads, modes ...report.Mode) Config {
	c := Config{Setting: labtest.Setting(t), Modes: modes, Duration: 1e9, LoadPercent: nearFirst, Workloads: w}
	t.Cleanup(func() { labtest.NothingLeft(t, c.Setting) })
	return c
}

func TestRedisAndACommandRunBesideEachOther(t *testing.T) {
	inTurn(t)
	labtest.RequireReal(t, work.RedisProgram, work.XZProgram)
	t.Setenv("TMPDIR", labtest.OpenDir(t))
	c := ownExperiment(t, work.Workloads{Service: "redis", Batch: []string{"memory", "while :; do echo step; done"}, WorkRegexp: "^step"}, report.SchedIdle)
	o, err := Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	e, runs, err := report.Load[colocation.Experiment, colocation.Run](o.Dir)
	if err != nil {
		t.Fatal(err)
	}
	if e.Own == nil || e.Own.Service != "redis" || !strings.HasPrefix(e.Own.Load, "redis://127.0.0.1:") || len(e.Own.Batch) != 2 || e.Own.Batch[1].Unit != "work" || e.Own.Batch[1].Solo <= 0 {
		t.Errorf("own workloads %+v", e.Own)
	}
	for _, r := range runs {
		if r.Requests == 0 || r.LSCPU <= 0 || r.BECPU <= 0 || len(r.Work) != 2 || r.Work[0] <= 0 || r.Work[1] <= 0 || r.FramesPerS <= 0 {
			t.Errorf("%s: %d requests, %v CPUs of the service, %v of the batch work, work %v, %v of alone", r.Mode, r.Requests, r.LSCPU, r.BECPU, r.Work, r.FramesPerS)
		}
	}
	var table strings.Builder
	if err := o.Findings.Page().WriteText(&table); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(table.String(), "ffmpeg,") || strings.Contains(table.String(), "nginx on") {
		t.Errorf("the table speaks of programs that did not run:\n%s", table.String())
	}
}

// TestPostgreSQLRunsAsAnotherUser checks a service that needs a directory and
// refuses to run as root. In the second mode it runs outside of its cgroup.
func TestPostgreSQLRunsAsAnotherUser(t *testing.T) {
	inTurn(t)
	labtest.RequireReal(t, work.PostgresProgram, work.XZProgram)
	tmp := labtest.OpenDir(t)
	t.Setenv("TMPDIR", tmp)
	c := ownExperiment(t, work.Workloads{Service: "postgres", Batch: []string{"xz"}}, report.Default, report.SchedIdle)
	o, err := Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	e, runs, err := report.Load[colocation.Experiment, colocation.Run](o.Dir)
	if err != nil || len(runs) < 2 {
		t.Fatal(len(runs), err)
	}
	if e.Own == nil || e.Own.Service != "postgres" || !strings.HasPrefix(e.Own.Load, "postgres://tenon@127.0.0.1:") || !strings.HasPrefix(e.Versions["postgres"], "postgres (PostgreSQL) ") {
		t.Errorf("own workloads %+v, versions %v", e.Own, e.Versions)
	}
	for _, r := range runs {
		if r.Requests == 0 || len(r.Errors) != 0 || r.LSCPU <= 0 || r.BECPU <= 0 {
			t.Errorf("%s: %d requests, errors %v, %v CPUs of the service, %v of the batch work", r.Mode, r.Requests, r.Errors, r.LSCPU, r.BECPU)
		}
	}
	if left, err := filepath.Glob(filepath.Join(tmp, testbed.DirPrefix+"*")); err != nil || len(left) != 0 {
		t.Errorf("directories that are left: %v, error %v", left, err)
	}
}

func TestAServiceOfOnesOwnUnderALoadCommand(t *testing.T) {
	inTurn(t)
	labtest.RequireReal(t, work.MemcachedProgram)
	t.Setenv("TMPDIR", labtest.OpenDir(t))
	c := ownExperiment(t, work.Workloads{
		Service: "memcached -u daemon -l 127.0.0.1 -p 21987 -U 0", Ready: "test -d /proc/self",
		Load: "while :; do echo 250; sleep 0.01; done", Batch: []string{"compile"},
	}, report.Default)
	o, err := Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	e, runs, err := report.Load[colocation.Experiment, colocation.Run](o.Dir)
	if err != nil || len(runs) == 0 {
		t.Fatal(len(runs), err)
	}
	if e.Client != harness.ClientCommand || e.Own.Service != "memcached" {
		t.Errorf("client %s, own workloads %+v", e.Client, e.Own)
	}
	if r := runs[0]; r.Requests < 10 || r.Latency.P50 != 250 || r.BECPU <= 0 {
		t.Errorf("%d latencies, P50 %v, %v CPUs of the batch work", r.Requests, r.Latency.P50, r.BECPU)
	}
}

// TestAServiceThatDrivesItselfLeavesNoCPUToAClient tests a service that
// generates its own load. All CPUs of this process are tested, because there is
// no client.
func TestAServiceThatDrivesItselfLeavesNoCPUToAClient(t *testing.T) {
	inTurn(t)
	labtest.RequireReal(t)
	t.Setenv("TMPDIR", labtest.OpenDir(t))
	c := ownExperiment(t, work.Workloads{Service: "self", Batch: []string{"memory", "memory"}, SelfMemory: 1 << 20}, report.Tenon)
	o, err := Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	e, runs, err := report.Load[colocation.Experiment, colocation.Run](o.Dir)
	if err != nil {
		t.Fatal(err)
	}
	if e.TestedCPUs.Len() != runtime.NumCPU() || !e.ClientCPUs.Empty() || e.Own == nil || !strings.Contains(e.Own.Load, "itself, ") {
		t.Errorf("tested CPUs %v, client CPUs %v, own workloads %+v", e.TestedCPUs, e.ClientCPUs, e.Own)
	}
	for _, r := range runs {
		if r.Requests == 0 || r.LSCPU <= 0 || r.BECPU <= 0 || r.Histogram == nil || r.Timeslices == 0 {
			t.Errorf("%s: %d requests, %v CPUs of the service, %v of the batch work, %d timeslices", r.Mode, r.Requests, r.LSCPU, r.BECPU, r.Timeslices)
		}
	}
}

// TestAKeptServiceStaysBetweenRuns checks that the service is the same process
// in all runs, and that the process has ended after the experiment.
// TENON_TEST_LONG=1 adds two modes.
func TestAKeptServiceStaysBetweenRuns(t *testing.T) {
	inTurn(t)
	labtest.RequireReal(t, work.RedisProgram)
	t.Setenv("TMPDIR", labtest.OpenDir(t))
	pids := filepath.Join(t.TempDir(), "pids")
	redis, err := work.RedisProgram.Find()
	if err != nil {
		t.Fatal(err)
	}
	modes := []report.Mode{report.Burstable, report.Tenon, report.Solo}
	if os.Getenv("TENON_TEST_LONG") != "" {
		modes = append(modes, report.Exclusive, report.Default)
	}
	c := ownExperiment(t, work.Workloads{
		Service: fmt.Sprintf("echo $$ >>%s; exec %s --port 21989 --save '' --loglevel warning", pids, redis),
		Load:    "redis://127.0.0.1:21989", Batch: []string{"memory"}, Keep: true,
	}, modes...)
	o, err := Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	started, err := os.ReadFile(pids)
	if err != nil || strings.Count(string(started), "\n") != 1 {
		t.Errorf("started as %q, error %v, want one process", started, err)
	}
	e, runs, err := report.Load[colocation.Experiment, colocation.Run](o.Dir)
	if err != nil || len(runs) < len(modes) {
		t.Fatal(len(runs), err)
	}
	if !slices.ContainsFunc(e.Caveats, func(c string) bool { return strings.Contains(c, "kept between the runs") }) {
		t.Errorf("caveats %q", e.Caveats)
	}
	for _, r := range runs {
		if spec := r.Mode.Spec(); spec.Alone != (r.Requests == 0) || spec.Batch != (r.BECPU > 0) {
			t.Errorf("%s: %d requests, %v CPUs of the batch work", r.Mode, r.Requests, r.BECPU)
		}
	}
}

// TestAKeptServiceThatDrivesItselfGetsAnotherOrder checks that one process can
// do several runs. Each run has a load of its own.
func TestAKeptServiceThatDrivesItselfGetsAnotherOrder(t *testing.T) {
	inTurn(t)
	labtest.RequireReal(t)
	t.Setenv("TMPDIR", labtest.OpenDir(t))
	c := ownExperiment(t, work.Workloads{Service: "self", Batch: []string{"memory"}, SelfMemory: 1 << 20, Keep: true}, report.Exclusive, report.Default)
	o, err := Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	_, runs, err := report.Load[colocation.Experiment, colocation.Run](o.Dir)
	if err != nil || len(runs) < 2 {
		t.Fatal(len(runs), err)
	}
	for _, r := range runs {
		if r.Requests == 0 || r.Timeslices == 0 {
			t.Errorf("%s: %d requests, %d timeslices", r.Mode, r.Requests, r.Timeslices)
		}
	}
}

func TestModesThatChangeTheServiceCannotKeepIt(t *testing.T) {
	for mode, want := range map[report.Mode]string{
		report.Nice: "mode nice starts the service outside of its cgroup", report.TenonVendor: "mode tenon-vendor marks the service",
	} {
		_, err := Config{Modes: []report.Mode{report.Default, mode}, Workloads: work.Workloads{Service: "redis", Keep: true}}.WithDefaults()
		if err == nil || !strings.Contains(err.Error(), "--keep-service: "+want) {
			t.Errorf("%s: error %v, want %q", mode, err, want)
		}
	}
}

func TestFaultsOfOwnWorkloadsAreNamed(t *testing.T) {
	for name, tt := range map[string]struct {
		w    work.Workloads
		want string
	}{
		"no load":           {work.Workloads{Service: "./server"}, `--service "./server" is a command, not one of ` + strings.Join(work.Services, ", ") + `, so it needs --load: where the service listens`},
		"unknown protocol":  {work.Workloads{Service: "./server", Load: "ftp://127.0.0.1/"}, "want http://HOST[:PORT]/PATH, redis://HOST[:PORT], memcached://HOST[:PORT]"},
		"database of redis": {work.Workloads{Service: "./server", Load: "redis://127.0.0.1/3"}, "--load: url"},
		"no readiness":      {work.Workloads{Service: "./server", Load: "./bench 127.0.0.1"}, "add --ready"},
		"ready of nginx":    {work.Workloads{Ready: "true"}, "--ready is for a --service of your own"},
		"bad expression":    {work.Workloads{Batch: []string{"./job"}, WorkRegexp: "("}, "--work-regexp: error parsing regexp"},
		"no command":        {work.Workloads{WorkRegexp: "x", Batch: []string{"xz"}}, "--work-regexp is for a --batch command of your own"},
		"load of self":      {work.Workloads{Service: "self", Load: "http://127.0.0.1/"}, `--load "http://127.0.0.1/": the service self drives itself`},
		"threads of nginx":  {work.Workloads{SelfThreads: 2}, "--self-threads and --self-memory are for --service self"},
		"too many threads":  {work.Workloads{Service: "self", SelfThreads: 9999}, "--self-threads 9999: want 1 to 1024"},
		"empty batch":       {work.Workloads{Batch: []string{" "}}, "--batch: want one of ffmpeg, xz, compile, memory, or a command"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Config{Workloads: tt.w}.WithDefaults()
			if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("error %v, want one with %q", err, tt.want)
			}
		})
	}
	if c, err := (Config{Workloads: work.Workloads{Service: "redis"}}).WithDefaults(); err != nil || len(c.Modes) == 0 {
		t.Errorf("modes %v, error %v", c.Modes, err)
	}
}

func TestABrokenServiceIsOneClearError(t *testing.T) {
	inTurn(t)
	labtest.RequireReal(t)
	t.Setenv("TMPDIR", labtest.OpenDir(t))
	for name, tt := range map[string]struct {
		w    work.Workloads
		want string
	}{
		"ends":  {work.Workloads{Service: "echo bad flag >&2; exit 2", Load: "http://127.0.0.1:21988/", Batch: []string{"memory"}}, "service echo did not start: echo ended: exit status 2: bad flag"},
		"batch": {work.Workloads{Service: "redis", Batch: []string{"echo full >&2; exit 1"}}, "full"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Run(context.Background(), ownExperiment(t, tt.w, report.Exclusive))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
}
