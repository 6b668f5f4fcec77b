package jobs

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"tenon.sh/tenon/internal/model/unit"
)

const (
	markedV2 = `2026-03-17T10:24:35.04Z stderr F tenon-lab start due=1773743075 strategy=quota block=2 run=7 threads=0 source=film.ts cpu usage_usec 100000 user_usec 1 nr_periods 10 nr_throttled 2 throttled_usec 5000 memory 1000
2026-03-17T10:24:35.9Z stderr F Input #0, mov,mp4, from '/data/source7.mp4':
2026-03-17T10:24:45.5Z stderr F frame=  253 fps= 25 speed=2.25x
2026-03-17T10:24:46.04Z stderr F tenon-lab end status=0 cpu usage_usec 5100000 user_usec 1 nr_periods 120 nr_throttled 102 throttled_usec 6005000 memory 3000000
`
	markedV1 = `2026-03-17T10:24:35.04Z stderr F tenon-lab start due=1773743075 strategy=quota block=2 run=7 threads=0 source=film.ts cpu 100000000 nr_periods 10 nr_throttled 2 throttled_time 5000000 memory 1000
2026-03-17T10:24:35.9Z stderr F Input #0, mov,mp4, from '/data/source7.mp4':
2026-03-17T10:24:45.5Z stderr F frame=  253 fps= 25 speed=2.25x
2026-03-17T10:24:46.04Z stderr F tenon-lab end status=0 cpu 5100000000 nr_periods 120 nr_throttled 102 throttled_time 6005000000 memory 3000000
`
)

// TestAMarkedLogTellsTheWholeRow imports the log of a job. The row must be
// complete, because the log contains the counters of the job.
func TestAMarkedLogTellsTheWholeRow(t *testing.T) {
	for name, text := range map[string]string{"cgroup v2": markedV2, "cgroup v1": markedV1} {
		l, err := ReadLog(strings.NewReader(text))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		j := Job{Type: "quota"}.With(l)
		e := j.Extra
		if e.Void != "" || e.Strategy != "quota" || e.Block != 2 || e.Run != 7 || j.Source != "source7.mp4" || j.Duration() != 11*time.Second || e.Work.Or(0) != 253 {
			t.Errorf("%s: %+v", name, j)
		}
		if e.CPUSeconds.Or(0) != 5 || e.Periods.Or(0) != 110 || e.ThrottledPeriods.Or(0) != 100 || e.ThrottledSeconds.Or(0) != 6 || e.PeakMemory.Or(0) != 3000000 {
			t.Errorf("%s: counters %+v", name, e)
		}
		if late := e.LateSeconds.Or(9); late < 0.03 || late > 0.05 {
			t.Errorf("%s: late by %v s", name, late)
		}
	}
}

func TestAMarkedJobThatFailedDoesNotCount(t *testing.T) {
	lines := strings.SplitAfter(markedV2, "\n")
	for name, c := range map[string]struct{ text, fault string }{
		"killed":        {strings.Join(lines[:3], ""), "its log has no end: it was killed"},
		"failed":        {strings.ReplaceAll(markedV2, "status=0", "status=187"), "it ended with status 187"},
		"late":          {strings.ReplaceAll(markedV2, "due=1773743075", "due=1773743073"), "it began 2.0 s after the others"},
		"not ffmpeg":    {lines[0] + lines[3], ""},
		"a short job":   {lines[0] + strings.ReplaceAll(lines[3], "46.04Z", "35.50Z"), ""},
		"lab's barrier": {strings.ReplaceAll(markedV2, "due=1773743075 ", ""), ""},
	} {
		l, err := ReadLog(strings.NewReader(c.text))
		if err != nil || l.Fault() != c.fault {
			t.Errorf("%s: fault %q (%v), want %q", name, l.Fault(), err, c.fault)
		}
	}
	l, err := ReadLog(strings.NewReader(lines[0] + lines[3]))
	if j := (Job{}).With(l); err != nil || j.Source != "film.ts" {
		t.Errorf("the source of another program is %q (%v)", j.Source, err)
	}
}

// TestTheMarkScriptWritesWhatReadLogReads runs the script in the cgroup of this
// process.
func TestTheMarkScriptWritesWhatReadLogReads(t *testing.T) {
	if _, err := exec.LookPath("sh"); err != nil {
		t.Skip(err)
	}
	cmd := exec.Command("sh", "-c", MarkScript+`
mark start due=1 strategy=quota block=1 run=3 threads=2 source=a
mark end status=7`)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	word, m, ok := parseMark(time.Unix(3, 0), lines[0])
	if !ok || word != "start" || m.number("run") != 3 || m.number("threads") != 2 || m.said["source"] != "a" {
		t.Errorf("%q is %q %+v", lines[0], word, m)
	}
	if late, known := m.lateness(); !known || late != 2*time.Second {
		t.Errorf("late by %v", late)
	}
	_, v1 := os.Stat("/sys/fs/cgroup/cpuacct/cpuacct.usage")
	if _, known := m.Usage.Value(); v1 == nil && !known {
		t.Errorf("no CPU time in %q", lines[0])
	}
	if word, m, ok := parseMark(time.Time{}, lines[1]); !ok || word != "end" || m.said["status"] != "7" {
		t.Errorf("%q is %q %+v", lines[1], word, m)
	}
}

func TestNamesOfJobsAreReadBack(t *testing.T) {
	for _, c := range []Cell{
		{Type: "quota", Concurrency: 2, CPU: 500, Memory: 512 << 20}, {Type: "bm", Concurrency: 192, CPU: 100, Memory: 858993460},
		{Type: "unbounded", Concurrency: 4}, {Type: "aws", Concurrency: 12, CPU: 7000, Memory: unit.Bytes(16) << 30},
	} {
		name := LinkName(c.JobName(3)+"-x7k2p", "tenon-lab", "transcoder-3", idA)
		j, ok, err := FromLink("node", name)
		if err != nil || !ok || j.Type != c.Type || j.Concurrency != c.Concurrency || j.CPU != c.CPU || j.Memory != c.Memory || j.Index != 3 || j.Pod != "x7k2p_tenon-lab_transcoder" || j.ContainerID != idA {
			t.Errorf("%s is %+v (%v, %v), want %+v", name, j, ok, err, c)
		}
	}
}
