package jobs

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"
)

const dockerLog = `{"log":"ffmpeg version 3.1.2\n","stream":"stderr","time":"2026-03-17T10:24:35.5Z"}
{"log":"Input #0, mov,mp4,m4a, from '/data/source7.mp4':\n","stream":"stderr","time":"2026-03-17T10:24:35.9Z"}
{"log":"[libx264 @ 0x1] 264 - options: cabac=1 ref=3 threads=24 lookahead_threads=4\n","stream":"stderr","time":"2026-03-17T10:24:36Z"}
{"log":"frame=  100 fps=0.0 speed=1.5x    \rframe= 1253 fps= 25 q=-1.0 Lsize=    9120kB speed=2.25x\n","stream":"stderr","time":"2026-03-17T10:25:35.5Z"}
`

const criLog = `2026-03-17T10:24:35.5Z stderr F ffmpeg version 7.1
2026-03-17T10:24:35.9Z stderr F Input #0, mov,mp4, from '/data/source7.mp4':
2026-03-17T10:24:50Z stderr P frame=  100 fps=0.0 speed=1.5x    frame= 12
2026-03-17T10:25:35.5Z stderr F 53 fps= 25 q=-1.0 Lsize=    9120kB speed=2.25x
`

func TestBothLogFormatsGiveTheJob(t *testing.T) {
	for name, text := range map[string]string{"docker": dockerLog, "cri": criLog} {
		l, err := ReadLog(strings.NewReader(text))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if l.Last.Sub(l.First) != time.Minute || l.Source != "source7.mp4" || l.Frames != 1253 || l.Speed != 2.25 || l.Records != 4 || l.Fault() != "" {
			t.Errorf("%s: %+v, fault %q", name, l, l.Fault())
		}
		if want := map[string]int{"docker": 24, "cri": 0}[name]; l.Threads != want {
			t.Errorf("%s: %d threads, want %d", name, l.Threads, want)
		}
	}
}

// TestALogThatEndsEarlyIsNoFastJob reads a log that ends early. The published
// scripts took the time of a fixed line as the end, and so computed 0 seconds
// for such a log.
func TestALogThatEndsEarlyIsNoFastJob(t *testing.T) {
	cut := dockerLog[:strings.LastIndex(dockerLog, "stream")]
	for name, c := range map[string]struct{ text, fault string }{
		"cut within a line": {cut, "the log ends within a line"},
		"no input":          {criLog[:strings.Index(criLog, "\n")+1], "the log names no input"},
		"no time":           {strings.ReplaceAll(criLog[:strings.Index(criLog, "2026-03-17T10:24:50Z")], "35.9Z", "35.5Z"), "the log spans 0s"},
	} {
		l, err := ReadLog(strings.NewReader(c.text))
		if err != nil || l.Fault() != c.fault {
			t.Errorf("%s: fault %q (%v), want %q", name, l.Fault(), err, c.fault)
		}
	}
	if _, err := ReadLog(strings.NewReader("")); !errors.Is(err, ErrNoLine) {
		t.Errorf("an empty log: error %v", err)
	}
	for text, want := range map[string]string{
		"hello\nworld\n":                      `its log is damaged: line 1: it begins with "hello": want a JSON object, or a time`,
		"2026-03-17T10:24:35.5Z stdlog F x\n": `stream "stdlog": want stdout or stderr`,
		"{\"log\":\"x\"}\n":                   "the JSON object has no time",
		"hello":                               "no line of its log can be read",
	} {
		l, err := ReadLog(strings.NewReader(text))
		if j := (Job{Host: "a", Type: "b"}).With(l); err != nil || !strings.Contains(j.Extra.Void, want) || !j.Extra.Unread || j.Check() != nil {
			t.Errorf("%q: %+v, %v, %v; want %q", text, j, err, j.Check(), want)
		}
	}
}

// TestAJobThatFailedIsVoid reads logs in which ffmpeg fails, is stopped by a
// signal, or ends without its closing lines.
func TestAJobThatFailedIsVoid(t *testing.T) {
	open := criLog[:strings.LastIndex(criLog, "2026")]
	for text, fault := range map[string]string{
		open + "2026-03-17T10:25:35.5Z stderr F Conversion failed!\n":                    `ffmpeg says "Conversion failed!"`,
		criLog + "2026-03-17T10:25:36Z stderr F Exiting normally, received signal 15.\n": `ffmpeg says "Exiting normally, received signal 15"`,
		open: "the log has no closing line of ffmpeg: the job was killed, or the log is cut off",
		open + "2026-03-17T10:25:35.5Z stderr F video:9KiB audio:0KiB muxing overhead: 2%\n": "",
	} {
		l, err := ReadLog(strings.NewReader(text))
		if err != nil || l.Fault() != fault {
			t.Errorf("%q: fault %q (%v), want %q", text, l.Fault(), err, fault)
		}
		if j := (Job{}).With(l); j.Extra.Void != fault {
			t.Errorf("%q: void %q, want %q", text, j.Extra.Void, fault)
		}
	}
}

// TestJobsOfAnotherCellMakeAJobVoid runs four jobs of two types at once on node a.
// On node b, the waves follow each other, and one job of the second wave fails.
func TestJobsOfAnotherCellMakeAJobVoid(t *testing.T) {
	at := time.Unix(1e9, 0).UTC()
	job := func(host, how string, i int, in, out time.Duration) Job {
		return Job{Host: host, Type: how, Concurrency: 4, CPU: 1000, Index: i, In: at.Add(in), Out: at.Add(out)}
	}
	var all []Job
	for i := range 4 {
		all = append(all, job("a", "quota", i, 0, time.Minute), job("a", "burst", i, 0, time.Minute))
		all = append(all, job("b", "quota", i, 0, time.Minute), job("b", "burst", i, 59*time.Second, 2*time.Minute))
	}
	all = append(all, job("b", "failed", 0, time.Hour, 2*time.Hour), job("b", "failed", 1, time.Hour, 2*time.Hour), job("b", "short", 0, 3*time.Hour, 3*time.Hour))
	all[len(all)-2].Extra.Void = "killed"
	VoidMixed(all)
	for _, j := range all {
		want := ""
		switch {
		case j.Host == "a":
			want = "4.0 jobs of other cells ran beside it"
		case j.Type == "failed" && j.Index == 1:
			want = "killed"
		case j.Type == "failed":
			want = "1.0 jobs that are void ran beside it"
		case j.Type == "short":
			want = "it took 0 s: its table has no shorter times than 1 s"
		}
		if j.Extra.Void != want {
			t.Errorf("%s %s %d: void %q, want %q", j.Host, j.Type, j.Index, j.Extra.Void, want)
		}
	}
}

func TestLinkNamesTellTheJob(t *testing.T) {
	j, ok, err := FromLink("node00", "bm-1-0.8-1gi-0-t8fs5_default_transcoder-0-"+idA+".log")
	if err != nil || !ok || j.Type != "bm" || j.Concurrency != 1 || j.CPU != 800 || j.Memory != 1<<30 || j.Pod != "t8fs5_default_transcoder" || j.ContainerID != idA {
		t.Errorf("%+v, %v, %v", j, ok, err)
	}
	if j, ok, err := FromLink("node00", "aws-16cx1-4-800m-8gi-3-x7k2p_lab_transcoder-3-"+idA+".log"); err != nil || !ok || j.Type != "aws-16cx1" || j.CPU != 800 || j.Index != 3 {
		t.Errorf("%+v, %v, %v", j, ok, err)
	}
	if _, ok, _ := FromLink("node00", "coredns-abc_kube-system_coredns-"+idA+".log"); ok {
		t.Error("the log of another pod is taken for that of a job")
	}
}

func TestALateJobIsAWaveOfItsOwn(t *testing.T) {
	at := time.Unix(1e9, 0).UTC()
	job := func(host string, i int, in, out time.Duration) Job {
		return Job{Host: host, Type: "lxd", Concurrency: 4, CPU: 4000, Index: i, In: at.Add(in), Out: at.Add(out)}
	}
	waves := Waves([]Job{
		job("a", 0, 0, 50*time.Second), job("a", 1, 0, 54*time.Second), job("a", 2, 63*time.Second, 93*time.Second),
		job("b", 3, 0, 50*time.Second),
	})
	if len(waves) != 3 {
		t.Fatalf("%d waves, want 3: %+v", len(waves), waves)
	}
	if w := waves[0]; len(w.Jobs) != 2 || w.Late || !w.Lopsided || w.Beside < 1.9 || w.Beside > 2 {
		t.Errorf("first wave %+v", w)
	}
	if w := waves[1]; len(w.Jobs) != 1 || !w.Late || w.Beside != 1 {
		t.Errorf("late wave %+v", w)
	}
	if w := waves[2]; w.Host != "b" || !w.Lopsided {
		t.Errorf("wave of the other node %+v", w)
	}
}

func FuzzReadLog(f *testing.F) {
	f.Add(dockerLog)
	f.Add(criLog)
	f.Add(`{"log":"x","time":"2026`)
	f.Add(criLog + strings.Repeat("\x00", 4096) + "\n" + criLog)
	f.Fuzz(func(t *testing.T, text string) {
		l, err := ReadLog(strings.NewReader(text))
		if err == nil && (l.Records == 0 && l.Fault() == "" || l.Frames < 0 || len(l.Fault()) > 500) {
			t.Errorf("%q gives %+v, fault %q", text, l, l.Fault())
		}
		if err != nil {
			return
		}
		// Any log makes a job that can be written, or one whose times are out of range.
		if j := (Job{Host: "a", Type: "b"}).With(l); l.First.Unix() >= 0 && l.First.Before(time.Unix(maxTimestamp, 0)) && l.start == nil && !j.In.After(j.Out) {
			if err := j.Check(); err != nil {
				t.Errorf("%q gives %+v: %v", text, j, err)
			}
		}
	})
}

// FuzzFromLink checks names. If FromLink reads a name, the row must stay the
// same when it is written and read back.
func FuzzFromLink(f *testing.F) {
	f.Add("bm-1-0.8-1gi-0-t8fs5_default_transcoder-0-" + idA + ".log")
	f.Add("aws-16cx1-4-800m-0.8gi-3-x7k2p_lab_transcoder-3-" + idA + ".log")
	f.Add("\x85s-,6cx1-4-800m-0.8gi-3-x7k2p_lab_transcoder-3-" + idA + ".log")
	f.Add("a\rb-4-800m-0.8gi-3-x7k2p_lab_transcoder-3-" + idA + ".log")
	f.Fuzz(func(t *testing.T, name string) {
		j, ok, err := FromLink("node00", name)
		if !ok || err != nil {
			return
		}
		var b bytes.Buffer
		if err := WriteTable(&b, []Job{j}); err != nil {
			t.Fatal(err)
		}
		if all, err := ReadTable(&b); err != nil || len(all) != 1 || all[0].Cell() != j.Cell() {
			t.Errorf("%q is %+v, and reads back as %+v (%v)", name, j, all, err)
		}
	})
}
