package vm

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// withFileSystem gives the machine a disk with an empty file system. The kernel
// can reclaim page cache only if a device backs it.
func withFileSystem(t *testing.T, m Machine, mebibytes int64) Machine {
	t.Helper()
	m.Disk = filepath.Join(t.TempDir(), "disk")
	f, err := os.Create(m.Disk)
	if err == nil {
		err = f.Truncate(mebibytes << 20)
	}
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	mkfs, err := exec.LookPath("mkfs.ext4")
	if err != nil {
		mkfs, err = exec.LookPath("/sbin/mkfs.ext4") // not on the PATH of other users
	}
	if err != nil {
		missing(t, "needs mkfs.ext4: install e2fsprogs")
	}
	if output, err := exec.Command(mkfs, "-q", "-F", m.Disk).CombinedOutput(); err != nil {
		t.Fatalf("make a file system: %v\n%s", err, output)
	}
	return m
}

// TestMemoryAndReactionOnCgroupV2 runs the memory and reaction experiments with
// a real tenond. It checks what they do. It does not check times, which have no
// meaning in emulation. The kernel handles pages as on real hardware. The guest
// counts time by its instructions, because tenond must be ready within a limit
// even on a busy host.
func TestMemoryAndReactionOnCgroupV2(t *testing.T) {
	needTurn(t, "memory and reaction")
	t.Parallel()
	m := withFileSystem(t, countInstructions(t, machine(t)), 512)
	m.ShorterTicks = true
	m.Topology = Topology{Sockets: 1, CoresPerSocket: 2, ThreadsPerCore: 2}
	m.MiBPerNode = 2048
	image := withTenon(t, realPrograms(t, "nginx"))
	if err := image.File("/usr/bin/tenond", build(t, []string{"build"}, "./cmd/tenond")); err != nil {
		t.Fatal(err)
	}
	memory := Command{
		Name: "memory",
		Args: []string{
			"tenon", "lab", "memory", "--agent", "--modes", "default,tenond", "--blocks", "1", "--duration", "5s",
			"--set", "48Mi", "--rate", "40", "--data", "/disk", "--max-steal", "100", "--no-retry",
			"--cpus", "0-1", "--client-cpus", "2", "--out", "/memory",
		},
		Timeout: 8 * time.Minute,
	}
	reaction := Command{
		Name: "reaction.txt",
		Args: []string{
			"tenon", "lab", "reaction", "--modes", "psi,tick", "--contrast", "6", "--blocks", "1", "--step", "1s", "--max-steal", "100",
			"--cpus", "0-1", "--client-cpus", "2", "--out", "/reaction",
		},
		Timeout: 4 * time.Minute,
	}
	report := runChecked(t, m, image, 15*time.Minute, checkExperiments,
		Shell("disk", "mkdir /disk && mount -t ext4 /dev/nvme0n1 /disk"),
		memory,
		Shell("memory.json", "cat /memory/experiment.json /memory/runs/*.json"),
		reaction,
		Shell("reaction.jsonl", "cat /reaction/steps.jsonl"),
		Shell("pages", "grep -c '</html>' /memory/report.html /reaction/report.html"),
		Shell("files", "ls -A /disk | grep -v lost+found; ls -d /run/tenon-lab* 2>/dev/null; true"),
		Shell("leftovers", leftovers))
	keepRaw(t, report, "memory.json", "reaction.jsonl", "reaction.txt")
}

func checkExperiments(t *findings, report Report) {
	for _, name := range []string{"disk", "memory", "reaction.txt", "pages"} {
		if o, ok := report.Outcome(name); !ok || o.Exit != 0 {
			t.Errorf("%s: exit %d\n%s", name, o.Exit, o.Output)
		}
	}
	if o, _ := report.Outcome("files"); strings.TrimSpace(o.Output) != "" {
		t.Errorf("files are left:\n%s", o.Output)
	}
	checkLeftovers(t, report)
	t.Run("tenond protects the pages of the service", func(t *findings) { checkMemory(t, report) })
	t.Run("PSI wakes tenond", func(t *findings) { checkSteps(t, report) })
}

// keepRaw writes the outputs with the given names to the directory
// TENON_TEST_RAW, if it is set. They are the raw data of an experiment in this
// machine.
func keepRaw(t *testing.T, report Report, names ...string) {
	dir := os.Getenv("TENON_TEST_RAW")
	if dir == "" {
		return
	}
	for _, name := range names {
		o, _ := report.Outcome(name)
		if err := os.WriteFile(filepath.Join(dir, "vm-"+name), []byte(o.Output), 0o644); err != nil {
			t.Error(err)
		}
	}
}

// checkMemory checks the raw data of all runs, even of void ones.
func checkMemory(t *findings, report Report) {
	o, _ := report.Outcome("memory.json")
	refaults := map[string]int64{}
	for decoder := json.NewDecoder(strings.NewReader(o.Output)); decoder.More(); {
		var run struct {
			Mode   string   `json:"mode"`
			Void   []string `json:"void"`
			Writes []string `json:"writes"`
			Memory struct {
				Refaults int64 `json:"ls_refaults"`
				Held     int64 `json:"ls_file_bytes"`
				Done     int64 `json:"be_bytes_processed"`
			} `json:"memory"`
		}
		if err := decoder.Decode(&run); err != nil {
			t.Errorf("runs/*.json: %v\n%s", err, o.Output)
			return
		}
		if run.Mode == "" { // experiment.json
			continue
		}
		t.Logf("%-8s %6d refaults, %d MiB of the service in memory, batch went through %d MiB, void %q\n%s", run.Mode, run.Memory.Refaults,
			run.Memory.Held>>20, run.Memory.Done>>20, run.Void, strings.Join(run.Writes, "\n"))
		refaults[run.Mode] = max(refaults[run.Mode], run.Memory.Refaults)
		if run.Memory.Done == 0 {
			t.Errorf("%s: the batch work has done nothing", run.Mode)
		}
		if run.Mode != "tenond" {
			continue
		}
		for _, want := range []string{"pod-nginx memory", "low 62914560", "pod-hog memory", "high 3"} {
			if !strings.Contains(strings.Join(run.Writes, "\n"), want) {
				t.Errorf("tenond wrote %q, want %q in it", run.Writes, want)
			}
		}
	}
	if refaults["default"] == 0 || refaults["tenond"] > refaults["default"]/2 {
		t.Errorf("refaults of the service %v: want some in default, and less than half with tenond", refaults)
	}
}

// checkSteps checks that the raw data contain events and ticks.
func checkSteps(t *findings, report Report) {
	o, _ := report.Outcome("reaction.jsonl")
	steps, events, answers := map[string]int{}, map[string]int{}, 0
	for decoder := json.NewDecoder(strings.NewReader(o.Output)); decoder.More(); {
		var step struct {
			Mode   string `json:"mode"`
			Events []struct {
				Kind string `json:"kind"`
			} `json:"events"`
			Turns []struct {
				Woken    *time.Duration `json:"woken_ns"`
				Ended    time.Duration  `json:"ended_ns"`
				Writes   int            `json:"writes"`
				Narrowed bool           `json:"narrowed"`
			} `json:"turns"`
		}
		if err := decoder.Decode(&step); err != nil {
			t.Errorf("steps.jsonl: %v\n%s", err, o.Output)
			return
		}
		steps[step.Mode]++
		for _, e := range step.Events {
			events[step.Mode]++
			if e.Kind != "pressure" {
				t.Errorf("mode %s has an event of kind %s", step.Mode, e.Kind)
			}
		}
		for _, turn := range step.Turns {
			if turn.Woken != nil {
				answers++
			}
		}
	}
	t.Logf("steps %v, events %v, turns that they woke %d", steps, events, answers)
	if steps["psi"] != 6 || steps["tick"] != 6 {
		t.Errorf("steps %v, want six of each mode", steps)
	}
	if events["psi"] == 0 || answers == 0 {
		t.Errorf("no PSI trigger has woken tenond: events %v, %d turns", events, answers)
	}
	if events["tick"] > 0 {
		t.Errorf("in mode tick tenond was told of %d events", events["tick"])
	}
}
