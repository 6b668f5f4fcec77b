package launch

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tenon.sh/tenon/internal/kernel/proc"
	"tenon.sh/tenon/internal/model/node"
)

func TestNamesAreCgroupNames(t *testing.T) {
	tests := map[string]struct {
		name, command, want string // want "": the name is refused
	}{
		"given":                 {"nightly", "make", "nightly"},
		"with a version":        {"ffmpeg-5.1", "ffmpeg", "ffmpeg-5.1"},
		"made from the command": {"", "/usr/bin/ffmpeg", "ffmpeg-PID"},
		"made from an odd one":  {"", "./my job:1", "my_job_1-PID"},
		"made from a dot file":  {"", "./.run", "run-PID"},
		"made from a script":    {"", "./memory.py", "memory-py-PID"},
		"with a slash":          {"a/b", "make", ""},
		"upwards":               {"..", "make", ""},
		"with a line feed":      {"a\nb", "make", ""},
		"like a kernel file":    {"cpu.max", "make", ""},
		"like one of cgroup":    {"cgroup.procs", "make", ""},
		"too long":              {strings.Repeat("x", 129), "make", ""},
	}
	pid := filepath.Base(mustReadlink(t, "/proc/self"))
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			c := Command{Name: tc.name, Args: []string{tc.command}, Class: node.BE}
			err := c.Check()
			if tc.want == "" {
				if err == nil || strings.Contains(err.Error(), "\n") {
					t.Errorf("name %q: error %v, want one line", tc.name, err)
				}
				return
			}
			if want := strings.Replace(tc.want, "PID", pid, 1); err != nil || c.Name != want {
				t.Errorf("name %q (%v), want %q", c.Name, err, want)
			}
		})
	}
	if err := (&Command{}).Check(); err == nil {
		t.Error("no command: want an error")
	}
}

func mustReadlink(t *testing.T, path string) string {
	t.Helper()
	s, err := os.Readlink(path)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestEachClassMeetsTheOthersAtItsParent(t *testing.T) {
	want := map[node.Class]node.CgroupPath{
		node.BE: "tenon-be", node.LS: "tenon-ls", node.LSR: "tenon-ls", node.LSE: "tenon-ls", node.System: "tenon-ls",
	}
	got := map[node.Class]node.CgroupPath{}
	for _, class := range node.Classes {
		w := Command{Class: class, Name: "job"}.Workload("")
		got[class] = w.ContentionRoot
		if w.Cgroup != w.ContentionRoot+"/job" {
			t.Errorf("%s: cgroup %s, want a child of %s", class, w.Cgroup, w.ContentionRoot)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestResultSaysWhatIsKnown(t *testing.T) {
	tests := map[string]struct {
		result Result
		want   string
	}{
		"whole": {
			Result{Name: "job", Class: node.BE, WallSeconds: 2, CPUSeconds: 3, ThrottledSeconds: node.Some(0.5), WaitedSeconds: 1, WaitedCoverage: 0.99},
			"job (BE) got 3.00 s of CPU in 2.00 s (1.50 CPUs), throttled 0.50 s, waited 1.00 s for a CPU",
		},
		"without a group": {
			Result{Name: "job", Class: node.BE, WallSeconds: 2, CPUSeconds: 3, WaitedSeconds: 1, WaitedCoverage: 0.4},
			"job (BE) got 3.00 s of CPU in 2.00 s (1.50 CPUs), waited at least 1.00 s for a CPU",
		},
		"killed at the limit": {
			Result{Name: "job", Class: node.LS, Signal: "SIGKILL", ThrottledSeconds: node.Some(0.0), WaitedCoverage: 1, OOMKills: node.Some[int64](1)},
			"job (LS) got 0.00 s of CPU in 0.00 s (0.00 CPUs), throttled 0.00 s, waited 0.00 s for a CPU, ended by SIGKILL, 1 killed at the memory limit",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, tc.result.String()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestHighestDelegatedGroupIsUsed(t *testing.T) {
	const own = "user.slice/user@1000.service/app.slice/shell.scope"
	tests := map[string]struct {
		writable []string          // suffixes of writable directories
		controls map[string]string // content of cgroup.subtree_control by directory
		procs    map[string]string
		want     node.CgroupPath
		found    bool
	}{
		"nothing delegated": {},
		"a delegated scope": {
			writable: []string{"shell.scope"}, controls: map[string]string{own: "cpu memory"}, want: own, found: true,
		},
		"the user's whole service": {
			writable: []string{"shell.scope", "app.slice", "user@1000.service"},
			controls: map[string]string{"user.slice/user@1000.service": "cpu memory pids"},
			want:     "user.slice/user@1000.service", found: true,
		},
		"no cpu controller below, and processes in the way": {
			writable: []string{"shell.scope"}, procs: map[string]string{own: "17\n"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			for p := node.CgroupPath(own); p != ""; p = p.Parent() {
				dir := filepath.Join(root, string(p))
				if err := os.MkdirAll(dir, 0o755); err != nil {
					t.Fatal(err)
				}
				for file, text := range map[string]string{
					"cgroup.subtree_control": tc.controls[string(p)], "cgroup.controllers": "cpu memory", "cgroup.procs": tc.procs[string(p)],
				} {
					if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644); err != nil {
						t.Fatal(err)
					}
				}
			}
			may := func(path string) bool {
				path = strings.TrimSuffix(strings.TrimSuffix(path, "/cgroup.procs"), "/cgroup.subtree_control")
				for _, w := range tc.writable {
					if strings.HasSuffix(path, w) {
						return true
					}
				}
				return false
			}
			got, found := findDelegated(root, own, may)
			if got != tc.want || found != tc.found {
				t.Errorf("delegated: %q %v, want %q %v", got, found, tc.want, tc.found)
			}
		})
	}
}

func TestDelayCountsThreadsThatCameAndWent(t *testing.T) {
	root := t.TempDir()
	write := func(pid, tid, text string) {
		t.Helper()
		dir := filepath.Join(root, pid, "task", tid)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(dir+"/schedstat", []byte(text+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	m := newDelayMeter(proc.FS{Proc: root}, func() ([]int, error) { return []int{10}, nil }, 10, Delay{Waited: 5, Seen: 50})
	write("10", "10", "100 10 3")
	write("10", "11", "200 20 3")
	m.sample()
	write("10", "10", "150 15 4") // the same thread
	write("10", "11", "7 1 1")    // another thread with the same id
	m.sample()
	want := Delay{Waited: 15 + 20 + 1 - 5, Seen: 150 + 200 + 7 - 50}
	if got := m.total(); got != want {
		t.Errorf("total %+v, want %+v", got, want)
	}
	if err := os.RemoveAll(filepath.Join(root, "10", "task", "11")); err != nil {
		t.Fatal(err)
	}
	m.sample()
	if got := m.total(); got != want || len(m.threads) != 1 {
		t.Errorf("after the end of a thread: total %+v, %d threads, want %+v and 1 thread", got, len(m.threads), want)
	}
}
