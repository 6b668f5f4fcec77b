package work

import (
	"context"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"tenon.sh/tenon/internal/kernel/proc"
	"tenon.sh/tenon/internal/lab/testbed"
)

func TestLinesOfABatchCommandAreItsProgress(t *testing.T) {
	for name, c := range map[string]struct {
		line, text string
		want       float64
	}{
		"amounts":        {`^done (\d+)`, "start\ndone 3\ndone 10 of 20\nrate 99\ndone 12\n", 12},
		"lines":          {`^ok `, "ok a\nfail b\nok c\nok d\n", 3},
		"not a number":   {`^done (\S+)`, "done 4\ndone many\n", 4},
		"a negative one": {`^done (\S+)`, "done 4\ndone -7\n", 4},
	} {
		at := time.Unix(100, 0)
		m := &Marks{}
		if err := m.FollowLines(strings.NewReader(c.text), regexp.MustCompile(c.line), func() time.Time { at = at.Add(time.Second); return at }); err != nil {
			t.Fatal(err)
		}
		if got, _ := m.ProgressBetween(time.Unix(0, 0), at); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestManyLinesNeedFewMarks(t *testing.T) {
	at := time.Unix(100, 0)
	m := &Marks{}
	if err := m.FollowLines(strings.NewReader(strings.Repeat("ok\n", 10000)), regexp.MustCompile("^ok"), func() time.Time { at = at.Add(100 * time.Microsecond); return at }); err != nil {
		t.Fatal(err)
	}
	if got, _ := m.ProgressBetween(time.Unix(0, 0), at); got != 10000 || len(m.marks) > 150 {
		t.Errorf("%v lines in %d marks", got, len(m.marks))
	}
	if half, _ := m.ProgressBetween(time.Unix(100, 0), time.Unix(100, 5e8)); half < 4800 || half > 5200 {
		t.Errorf("%v lines in the first half second of one, want 5000", half)
	}
}

func TestACommandWithoutProgressIsMeasuredInCPUTime(t *testing.T) {
	began := time.Now()
	s := &testbed.Site{FS: proc.Default()}
	w, err := FindWork(s, "while :; do :; done", nil, "")
	if err != nil || w.Unit != "CPU s" || w.Name != "while" {
		t.Fatalf("%+v, %v", w, err)
	}
	b, err := StartBatch(s, w.Job(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer b.Stop()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if used, _ := b.ProgressBetween(began, time.Now()); used >= 0.05 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("it used no CPU time")
		}
	}
	if used, err := b.Used(proc.Default()); err != nil || used < 50*time.Millisecond {
		t.Errorf("used %v, %v", used, err)
	}
}

// TestShortCommandsAreMeasuredWhole uses commands that end before their CPU
// time is read a second time.
func TestShortCommandsAreMeasuredWhole(t *testing.T) {
	began := time.Now()
	s := &testbed.Site{FS: proc.Default()}
	w, err := FindWork(s, "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done", nil, "")
	if err != nil {
		t.Fatal(err)
	}
	b, err := StartBatch(s, w.Job(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer b.Stop()
	if err := b.Encoding(t.Context()); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		used, err := b.Used(proc.Default())
		if err != nil {
			t.Fatal(err)
		}
		if used >= 400*time.Millisecond {
			if measured, _ := b.ProgressBetween(began, time.Now()); measured < used.Seconds()/2 {
				t.Errorf("%.3f s are measured of %v", measured, used)
			}
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("used %v in 20 s", used)
		}
	}
}

func TestNamedBatchWorkShowsProgress(t *testing.T) {
	if _, err := CompilerProgram.Find(); err != nil {
		t.Skip(err)
	}
	s := &testbed.Site{FS: proc.Default()}
	w, err := FindWork(s, "compile", nil, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	b, err := StartBatch(s, w.Job(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer b.Stop()
	if err := b.Encoding(t.Context()); err != nil {
		t.Error(err)
	}
	xz, err := XZProgram.Find()
	if err != nil {
		t.Skip(err)
	}
	for name, run := range map[string]func(context.Context, *strings.Builder) error{
		"xz":     func(ctx context.Context, out *strings.Builder) error { return Compress(ctx, xz, out) },
		"memory": func(ctx context.Context, out *strings.Builder) error { return Memory(ctx, 4<<20, out) },
	} {
		var out strings.Builder
		ctx, stop := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		err := run(ctx, &out)
		stop()
		first, _, _ := strings.Cut(out.String(), "\n")
		if err != nil || !workLine.MatchString(first) {
			t.Errorf("%s: %q, error %v", name, first, err)
		}
	}
	if err := Compress(t.Context(), "/bin/false", &strings.Builder{}); err == nil {
		t.Error("an xz that fails is no error")
	}
}

func TestAServiceThatDoesNotStartSaysWhy(t *testing.T) {
	start := func(command string) error {
		s, _, err := FindService(t.Context(), nil, command, 0, 1, 0)
		if err != nil {
			t.Fatal(err)
		}
		s.Ready = "exit 1"
		p, err := s.Start(t.Context(), testbed.NoGroups{}, "", (&testbed.Site{}).Place.Tested)
		if err == nil {
			s.Stop(p)
		}
		return err
	}
	if err := start("echo no configuration >&2; exit 4"); err == nil || !strings.Contains(err.Error(), "service echo did not start: echo ended: exit status 4: no configuration") {
		t.Errorf("error %v", err)
	}
	s, _, err := FindService(t.Context(), nil, "sleep 30", 0, 1, 0)
	if err != nil {
		t.Fatal(err)
	}
	s.Ready = "true"
	p, err := s.Start(t.Context(), testbed.NoGroups{}, "", (&testbed.Site{}).Place.Tested)
	if err != nil {
		t.Fatal(err)
	}
	// The service may be ready before the shell has executed it.
	comm := func() string {
		name, err := os.ReadFile("/proc/" + strconv.Itoa(p.PID) + "/comm")
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(name))
	}
	for range 1000 {
		if comm() == "sleep" {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	if name := comm(); name != "sleep" {
		t.Errorf("the program does not replace its shell: %q", name)
	}
	s.Stop(p)
	if err := exec.Command("/bin/kill", "-0", strconv.Itoa(p.PID)).Run(); err == nil {
		t.Error("the service still runs")
	}
}
