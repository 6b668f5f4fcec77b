package vm

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
)

// leftovers prints cgroups and processes. No command may leave any of them
// behind.
const leftovers = "find /sys/fs/cgroup -mindepth 1 -type d -name 'tenon*'; pidof nginx ffmpeg tenon"

// withTenon adds the tenon program to the image.
func withTenon(t *testing.T, image *Image) *Image {
	t.Helper()
	if err := image.File("/usr/bin/tenon", build(t, []string{"build"}, "./cmd/tenon")); err != nil {
		t.Fatal(err)
	}
	return image
}

// contend makes LS and BE spin on the same CPU. It prints the CPU time in µs
// that each of them gets in four seconds in which both run.
const contend = `
	hog() { tenon run --qos $1 --quiet -- taskset 2 sh -c "touch /tmp/$1; while :; do :; done" & }
	here() { until test -e /tmp/$1; do sleep 0.1; done; }
	got() { sed -n 's/^usage_usec //p' /sys/fs/cgroup/tenon-$1/cpu.stat; }
	hog BE; be=$!; here BE
	hog LS; ls=$!; here LS
	ls0=$(got ls) be0=$(got be)
	sleep 4
	echo $(($(got ls) - ls0)) $(($(got be) - be0))
	kill $ls $be
	wait`

func TestCommandsOnCgroupV2(t *testing.T) {
	t.Parallel()
	machine(t)
	const be = "/sys/fs/cgroup/tenon-be"
	commands := []Command{
		Shell("doctor", "tenon doctor --try -o json"),
		Shell("doctor-text", "tenon doctor"),
		Shell("plan", "tenon plan --qos BE --name probe && test ! -e "+be),
		Shell("run-be", "tenon run --qos BE --quiet --name probe -- sh -c 'cat /proc/self/cgroup "+be+"/cpu.idle; exit 5'"),
		Shell("run-limited", "tenon run --qos BE --quiet --name probe --cpus 1.5 --memory 64Mi -- cat "+be+"/probe/cpu.max "+be+"/probe/memory.max"),
		Shell("run-signalled", "tenon run --qos LS --quiet -- sh -c 'kill -TERM $$'"),
		Shell("contend", contend),
		Shell("run-missing", "tenon run --qos BE -- /no/such/program"),
		Shell("restore", "tenon restore"),
		Shell("controllers", "cat /sys/fs/cgroup/cgroup.subtree_control"),
		Shell("leftovers", leftovers),
	}
	for i := range commands {
		commands[i].Timeout = time.Minute
	}
	runChecked(t, machine(t), withTenon(t, new(Image)), 5*time.Minute, checkCommands, commands...)
}

func checkCommands(t *findings, report Report) {
	for name, want := range map[string]struct {
		exit   int
		output string // the exact output; empty: any output
	}{
		"doctor":        {exit: 0},
		"doctor-text":   {exit: 0},
		"plan":          {exit: 0},
		"run-be":        {exit: 5, output: "0::/tenon-be/probe\n1"},
		"run-limited":   {exit: 0, output: "150000 100000\n67108864"},
		"run-signalled": {exit: 128 + 15},
		"run-missing":   {exit: 127},
		"restore":       {exit: 0, output: "disabled  controller cpuset for the children of cgroup /\ndisabled  controller io for the children of cgroup /"},
		"controllers":   {exit: 0, output: "cpu memory pids"}, // as before the commands
	} {
		o, ok := report.Outcome(name)
		if !ok || o.Exit != want.exit || want.output != "" && strings.TrimSpace(o.Output) != want.output {
			t.Errorf("%s: exit %d, output %q; want exit %d, output %q", name, o.Exit, o.Output, want.exit, want.output)
		}
	}
	t.Run("doctor knows the machine", func(t *findings) { checkDoctor(t, report) })
	t.Run("BE yields to LS", func(t *findings) {
		var ls, be int
		o, _ := report.Outcome("contend")
		if _, err := fmt.Sscan(o.Output, &ls, &be); err != nil {
			t.Errorf("contend: %v\n%s", err, o.Output)
			return
		}
		t.Logf("LS got %d µs, BE %d µs of one CPU", ls, be)
		if ls < 20*be {
			t.Errorf("BE got %d µs of CPU beside LS with %d µs", be, ls)
		}
	})
	checkLeftovers(t, report)
}

func checkDoctor(t *findings, report Report) {
	var d struct {
		CgroupVersions map[string]int `json:"cgroup_versions"`
		CPUs           int            `json:"cpus"`
		SMT            bool           `json:"smt"`
		Sockets        int            `json:"sockets"`
		NUMANodes      int            `json:"numa_nodes"`
		Virtualization string         `json:"virtualization"`
		Mechanisms     []struct {
			Name      string `json:"name"`
			Available string `json:"available"`
		} `json:"mechanisms"`
	}
	o, _ := report.Outcome("doctor")
	if err := json.Unmarshal([]byte(o.Output), &d); err != nil {
		t.Errorf("doctor -o json: %v\n%s", err, o.Output)
		return
	}
	if d.CPUs != 8 || !d.SMT || d.Sockets != 2 || d.NUMANodes != 2 || d.Virtualization != "virtual machine" {
		t.Errorf("doctor sees another machine: %+v", d)
	}
	for _, controller := range []string{"cpu", "cpuset", "memory", "pids"} {
		if d.CgroupVersions[controller] != 2 {
			t.Errorf("doctor finds %s on cgroup v%d, want v2", controller, d.CgroupVersions[controller])
		}
	}
	answers := make(map[string]string)
	for _, m := range d.Mechanisms {
		answers[m.Name] = m.Available
	}
	// These are features that Debian's 6.18 cloud kernel has, or lacks, in
	// emulation.
	for name, want := range map[string]string{
		"cpu.idle": "yes", "cpu.max": "yes", "cpu.max.burst": "yes", "cpuset": "yes", "cpuset.cpus.partition": "yes",
		"memory.max": "yes", "psi": "yes", "psi.cgroup": "yes", "SCHED_IDLE": "yes", "smt": "yes",
		"core_sched": "no", "perf.hardware": "no", "resctrl.L3": "no", "cpu.bvt_warp_ns": "no",
	} {
		if answers[name] != want {
			t.Errorf("doctor says %q to %s, want %q", answers[name], name, want)
		}
	}
}

func checkLeftovers(t *findings, report Report) {
	if o, ok := report.Outcome("leftovers"); !ok || strings.TrimSpace(o.Output) != "" {
		t.Errorf("left behind: %q", o.Output)
	}
}
