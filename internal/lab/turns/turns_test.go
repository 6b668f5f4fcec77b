package turns_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/lab/harness"
	"tenon.sh/tenon/internal/lab/labtest"
	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/lab/testbed"
	"tenon.sh/tenon/internal/lab/turns"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// TestMain lets the test binary also serve as the process on a node.
func TestMain(m *testing.M) { labtest.Main(m) }

// The ids of the containers. They are no hexadecimal numbers, so no container of this
// machine has them.
const serviceID, batchID = "tenontestservice", "tenontestbatch"

// pods are the cgroups of two pods of this machine, in which processes run.
type pods struct {
	site                  *testbed.Site
	service, class, batch node.CgroupPath // of the container, the class and the container
	before                []cgroup.CPUWeight
	progress              string // a file
}

func (p *pods) weighted() []node.CgroupPath {
	return []node.CgroupPath{p.class, p.batch.Parent(), p.batch}
}

// podsHere starts the pods.
func podsHere(t *testing.T) *pods {
	t.Helper()
	labtest.RequireReal(t)
	setting := labtest.Setting(t)
	site, err := testbed.Enter(t.Context(), setting)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := site.Close(); err != nil {
			t.Error(err)
		}
		labtest.NothingLeft(t, setting)
	})
	root := setting.Root.Join("kubepods")
	p := &pods{
		site: site, service: root.Join("podservice").Join(serviceID), class: root.Join("besteffort"),
		batch: root.Join("besteffort").Join("podbatch").Join(batchID), progress: filepath.Join(t.TempDir(), "progress-1"),
	}
	for _, g := range []node.CgroupPath{setting.Root, root, p.service.Parent(), p.service, p.class, p.batch.Parent(), p.batch} {
		if err := site.Host.MakeGroup(g); err != nil {
			t.Fatal(err)
		}
	}
	for _, g := range p.weighted() {
		w := testbed.WeightOfRequest(0, site.Tree.Version())
		if err := site.Tree.WriteCPUWeight(string(g), w); err != nil {
			t.Fatal(err)
		}
		p.before = append(p.before, w)
	}
	if err := os.WriteFile(p.progress, []byte("frame=7\nprogress=continue\nframe=1"), 0o644); err != nil {
		t.Fatal(err)
	}
	for group, script := range map[node.CgroupPath]string{p.service: "sleep 1000", p.batch: "while :; do :; done"} {
		child, err := testbed.Start(site.Host, testbed.Child{Name: script, Group: group, CPUs: site.Place.Tested, Argv: []string{"sh", "-c", script}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(child.Kill)
	}
	return p
}

// local returns the switcher of this machine.
func (p *pods) local(t *testing.T) turns.Switcher {
	t.Helper()
	l, err := turns.NewLocal(p.site, &harness.Sampler{
		Tree: p.site.Tree, FS: p.site.FS, Tested: p.site.Place.Tested, Service: p.service.Parent(), Batch: p.batch.Parent(), Root: p.class,
		LSProcesses: func() ([]int, error) { return p.site.Tree.ProcsBelow(string(p.service)) },
	}, turns.Groups{
		Workloads: []node.Workload{
			{ID: "service", Class: node.LS, Cgroup: p.service.Parent(), ContentionRoot: p.service.Parent()},
			{ID: "batch", Class: node.BE, Cgroup: p.batch.Parent(), ContentionRoot: p.class},
		},
		Weighted: p.weighted(), Frozen: p.batch, Tested: p.site.Place.Tested, Request: 800,
	})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// order is what the process on a node does.
func (p *pods) order(t *testing.T) turns.Order {
	return turns.Order{
		Service: serviceID, Batch: batchID, Tested: p.site.Place.Tested, Request: 800, Progress: []string{p.progress},
		Journal: filepath.Join(t.TempDir(), "journal"), Patience: time.Minute,
	}
}

// A childLine is a process on a node that runs on this machine.
type childLine struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Scanner
	said strings.Builder // read it after the end of the process
	done chan struct{}
}

func startChild(t *testing.T) *childLine {
	t.Helper()
	l := &childLine{cmd: exec.Command(os.Args[0], "lab-child", turns.Role), done: make(chan struct{})}
	l.cmd.Stderr = &l.said
	in, err := l.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	l.in, l.out, l.cmd.Stdout = in, bufio.NewScanner(r), w
	if err := l.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	go func() {
		defer close(l.done)
		_ = l.cmd.Wait() // its status does not matter
	}()
	t.Cleanup(func() {
		l.Close()
		r.Close()
	})
	return l
}

// Say implements turns.Line.
func (l *childLine) Say(line string) (answer []string, err error) {
	if _, err := io.WriteString(l.in, line+"\n"); err != nil {
		return nil, err
	}
	for l.out.Scan() {
		if l.out.Text() == "." {
			return answer, nil
		}
		answer = append(answer, l.out.Text())
	}
	return nil, errors.Join(l.out.Err(), errors.New("no answer"))
}

// Close implements turns.Line: it ends the input of the process.
func (l *childLine) Close() {
	l.in.Close()
	<-l.done
}

// within waits until a fact holds.
func within(d time.Duration, holds func() bool) bool {
	for end := time.Now().Add(d); ; time.Sleep(5 * time.Millisecond) {
		if holds() {
			return true
		}
		if time.Now().After(end) {
			return false
		}
	}
}

func (p *pods) frozen(t *testing.T) bool {
	t.Helper()
	is, err := p.site.Tree.IsFrozen(string(p.batch))
	if err != nil {
		t.Error(err)
	}
	return is
}

func (p *pods) weights(t *testing.T) (all []cgroup.CPUWeight) {
	t.Helper()
	for _, g := range p.weighted() {
		w, err := p.site.Tree.ReadCPUWeight(string(g))
		if err != nil {
			t.Error(err)
		}
		all = append(all, w)
	}
	return all
}

// used enters a mode and returns the CPU time of the batch work in a part of it.
func used(t *testing.T, s turns.Switcher, mode report.Mode) float64 {
	t.Helper()
	if err := s.Enter(t.Context(), mode); err != nil {
		t.Fatalf("%s: %v", mode, err)
	}
	var usage [2]float64
	var at [2]time.Time
	for i := range usage {
		time.Sleep(200 * time.Millisecond)
		r, err := s.Reading()
		if err != nil || r.Undone != "" {
			t.Fatalf("%s: %v, %s", mode, err, r.Undone)
		}
		usage[i], at[i] = r.Count[harness.BEUsage], r.At
	}
	if d := at[1].Sub(at[0]); d < 200*time.Millisecond || time.Since(at[1]) > time.Minute {
		t.Errorf("%s: the readings are of %v and %v", mode, at[0], at[1])
	}
	return usage[1] - usage[0]
}

// TestSwitchersDoTheSame takes both switchers through all modes. After each change the
// cgroups have what the mode has, and after the end what they had.
func TestSwitchersDoTheSame(t *testing.T) {
	steps := map[string][]string{}
	for name, open := range map[string]func(*testing.T, *pods) turns.Switcher{
		"this machine": func(t *testing.T, p *pods) turns.Switcher { return p.local(t) },
		"a node": func(t *testing.T, p *pods) turns.Switcher {
			r, err := turns.OpenRemote(startChild(t), p.order(t), true, func(all []turns.Progress) error {
				if len(all) != 1 || all[0].End != "frame=7\nprogress=continue\n" || time.Since(all[0].Written) > time.Minute {
					t.Errorf("progress %+v", all)
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			return r
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := podsHere(t)
			s := open(t, p)
			frozen, beside := used(t, s, report.Frozen), used(t, s, report.Default)
			if !(beside > 0) || frozen > beside/4 {
				t.Errorf("the batch work used %.3f CPU seconds while it was frozen, and %.3f in mode default", frozen, beside)
			}
			for mode, request := range map[report.Mode]unit.MilliCPU{report.Burstable: 500, report.BurstableEighth: 100, report.BurstableHalf: 400, report.BurstableFull: 800} {
				used(t, s, mode)
				want := testbed.WeightOfRequest(request, p.site.Tree.Version())
				if got := p.weights(t); !slices.Equal(got, []cgroup.CPUWeight{want, want, want}) {
					t.Errorf("%s: weights %v, want %v", mode, got, want)
				}
			}
			if err := p.site.Tree.WriteCPUWeight(string(p.class), p.before[0]); err != nil {
				t.Fatal(err)
			}
			if r, err := s.Reading(); err != nil || r.Undone == "" {
				t.Errorf("another program wrote the weight of the class: %q, %v", r.Undone, err)
			}
			used(t, s, report.Tenon)
			if err := s.Enter(t.Context(), report.Frozen); err != nil {
				t.Fatal(err)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			if got := p.weights(t); p.frozen(t) || !slices.Equal(got, p.before) {
				t.Errorf("after the end: weights %v, want %v; frozen: %v", got, p.before, p.frozen(t))
			}
			writes, faults := s.Report()
			if len(faults) > 0 {
				t.Errorf("faults %q", faults)
			}
			for _, w := range writes {
				_, step, _ := strings.Cut(w, "s ") // the time comes first
				steps[name] = append(steps[name], step)
			}
		})
	}
	if !slices.Equal(steps["this machine"], steps["a node"]) {
		t.Errorf("Tenon wrote %q", steps)
	}
}

// TestANodeSaysWhoElseUsesIt watches a node on which a program spins, without containers
// of an experiment.
func TestANodeSaysWhoElseUsesIt(t *testing.T) {
	p := podsHere(t)
	o := p.order(t)
	o.Service, o.Batch, o.Progress = "", "", nil
	r, err := turns.OpenRemote(startChild(t), o, true, nil)
	if err != nil {
		t.Fatal(err)
	}
	got, err := r.Others(300 * time.Millisecond)
	if err := errors.Join(err, r.Close()); err != nil {
		t.Fatal(err)
	}
	spins := slices.ContainsFunc(got.Programs, func(p report.Program) bool { return p.Name == "sh" && p.CPUs > 0.1 })
	if got.Watched < 300*time.Millisecond || got.CPUs < 2 || !(got.Tested > 0.1) || !spins {
		t.Errorf("%+v", got)
	}
}

// TestALostLabLeavesNothing ends the lab, its connection, or the process on the node, in
// a mode that changes a cgroup.
func TestALostLabLeavesNothing(t *testing.T) {
	for name, c := range map[string]struct {
		mode report.Mode
		lose func(*childLine)
		wait time.Duration // patience
	}{
		"the lab while frozen":            {report.Frozen, func(l *childLine) { l.in.Close() }, time.Minute},
		"the lab beside requests":         {report.BurstableFull, func(l *childLine) { l.in.Close() }, time.Minute},
		"the network while frozen":        {report.Frozen, func(*childLine) {}, 2 * time.Second},
		"the network beside requests":     {report.Burstable, func(*childLine) {}, 2 * time.Second},
		"the process that changes modes":  {report.Frozen, func(l *childLine) { _ = l.cmd.Process.Kill() }, time.Minute},
		"the lab, by Ctrl-C and SIGTERM ": {report.Frozen, func(l *childLine) { _ = l.cmd.Process.Signal(unix.SIGTERM); l.in.Close() }, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			p := podsHere(t)
			line, o := startChild(t), p.order(t)
			o.Patience = c.wait
			r, err := turns.OpenRemote(line, o, true, nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := r.Enter(t.Context(), c.mode); err != nil {
				t.Fatal(err)
			}
			if !p.frozen(t) && slices.Equal(p.weights(t), p.before) {
				t.Errorf("mode %s changes nothing, so the test shows nothing", c.mode)
			}
			c.lose(line)
			if !within(10*time.Second, func() bool { return !p.frozen(t) && slices.Equal(p.weights(t), p.before) }) {
				t.Errorf("weights %v, want %v; frozen: %v", p.weights(t), p.before, p.frozen(t))
			}
			select {
			case <-line.done:
			case <-time.After(10 * time.Second):
				t.Error("the process on the node has not ended")
			}
		})
	}
}

// TestANodeSaysWhyItCannot has one error for each fault, before anything is changed.
func TestANodeSaysWhyItCannot(t *testing.T) {
	p := podsHere(t)
	for name, c := range map[string]struct {
		change func(*turns.Order)
		want   string
	}{
		"no such container":   {func(o *turns.Order) { o.Batch = "nosuchid" }, `the node has no cgroup of container "nosuchid"`},
		"another class":       {func(o *turns.Order) { o.Batch = serviceID }, "want the pod in the cgroup of the class BestEffort"},
		"not in a pod":        {func(o *turns.Order) { o.Service = "podservice" }, "want it in the cgroup of a pod"},
		"no progress":         {func(o *turns.Order) { o.Progress = []string{"/does/not/exist"} }, "read the progress of the batch work: open "},
		"a link for progress": {func(o *turns.Order) { o.Progress = []string{link(t, p.progress)} }, "too many levels of symbolic links"},
	} {
		o := p.order(t)
		c.change(&o)
		r, err := turns.OpenRemote(startChild(t), o, true, nil)
		if err == nil {
			_, err = r.Reading()
			if e := r.Close(); e != nil {
				t.Errorf("%s: close: %v", name, e)
			}
		}
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: error %v, want %q", name, err, c.want)
		}
	}
	r, err := turns.OpenRemote(startChild(t), p.order(t), true, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Enter(t.Context(), "fast"); err == nil || !strings.Contains(err.Error(), `does not know mode "fast"`) {
		t.Errorf("an unknown mode: %v", err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}

func link(t *testing.T, file string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(file, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// A fakeNode is a node whose clock is ahead, and which answers late.
type fakeNode struct {
	ahead  time.Duration
	answer func(line string) []string // nil: as a node does
	closed bool
}

func (n *fakeNode) Close() { n.closed = true }

func (n *fakeNode) Say(line string) ([]string, error) {
	if n.answer != nil {
		return n.answer(line), nil
	}
	time.Sleep(2 * time.Millisecond)
	at := time.Now().Add(n.ahead)
	a := map[string]any{"at": at}
	if line == "{}" {
		a["reading"] = turns.Reading{Reading: harness.Reading{At: at}, NoPSI: true}
		a["progress"] = []turns.Progress{{Written: at, End: "frame=1\n"}}
	}
	text, err := json.Marshal(a)
	time.Sleep(2 * time.Millisecond)
	return []string{string(text)}, err
}

// TestReadingsHaveTheTimeOfTheLab reads the counters of nodes whose clocks differ.
func TestReadingsHaveTheTimeOfTheLab(t *testing.T) {
	for _, ahead := range []time.Duration{0, -time.Hour, 3 * time.Second} {
		n := &fakeNode{ahead: ahead}
		var written time.Time
		r, err := turns.OpenRemote(n, turns.Order{}, false, func(p []turns.Progress) error {
			written = p[0].Written
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if d := r.Uncertainty(); d < 2*time.Millisecond || d > time.Second {
			t.Errorf("times are unsure by %v", d)
		}
		asked := time.Now()
		got, err := r.Reading()
		if err != nil || !got.NoPSI || got.At.Before(asked) || got.At.After(time.Now()) {
			t.Errorf("a clock ahead by %v: reading %+v, error %v, asked at %v", ahead, got, err, asked)
		}
		if written.Before(asked.Add(-time.Second)) || written.After(time.Now().Add(time.Second)) {
			t.Errorf("a clock ahead by %v: progress of %v, asked at %v", ahead, written, asked)
		}
	}
}

// TestAFaultOfANodeIsAnError has answers that are none.
func TestAFaultOfANodeIsAnError(t *testing.T) {
	for name, c := range map[string]struct {
		answer []string
		want   string
	}{
		"an error":   {[]string{`{"error":"disk full"}`}, "disk full"},
		"two lines":  {[]string{"{}", "{}"}, "it answers with 2 lines"},
		"nothing":    {nil, "it answers with 0 lines"},
		"no JSON":    {[]string{"sh: tenon: not found"}, "invalid character"},
		"no reading": {[]string{"{}"}, "an answer has no counters"},
	} {
		n := &fakeNode{answer: func(string) []string { return c.answer }}
		r, err := turns.OpenRemote(n, turns.Order{}, true, nil)
		if err != nil && !n.closed {
			t.Errorf("%s: the line stays open", name)
		}
		if err == nil {
			_, err = r.Reading()
		}
		if err == nil || !strings.Contains(err.Error(), "the process that changes the modes on the node: ") || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", name, err, c.want)
		}
	}
}

// TestAnotherProtocolIsRefused starts a process on a node with a lab of another version.
func TestAnotherProtocolIsRefused(t *testing.T) {
	l := startChild(t)
	answer, err := l.Say(`{"protocol":99}`)
	if err != nil || len(answer) != 1 || !strings.Contains(answer[0], "version 99 of the protocol") {
		t.Errorf("%q, %v", answer, err)
	}
	l.Close()
	if !strings.Contains(l.said.String(), "version 99") {
		t.Errorf("it says %q", l.said.String())
	}
}
