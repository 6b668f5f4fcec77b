package host_test

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/kernel/resctrl"
	"tenon.sh/tenon/internal/machine/conformance"
	"tenon.sh/tenon/internal/machine/host"
	"tenon.sh/tenon/internal/machine/journal"
	"tenon.sh/tenon/internal/model/node"
)

// A resctrlNode is the real node. It has the methods that the conformance suite
// about resctrl needs.
type resctrlNode struct {
	*machine
	root string
}

var showControls = []node.File{node.FileControlGroup, node.FileL3, node.FileMB}

// openResctrlNode opens a node on which resctrl is mounted. No other program
// may use resctrl.
func openResctrlNode(t *testing.T) resctrlNode {
	t.Helper()
	fs, err := resctrl.Find("/proc")
	if errors.Is(err, resctrl.ErrNotMounted) {
		t.Skip("resctrl is not mounted here; TestResctrl of test/vm runs this where it is")
	}
	if err != nil {
		t.Fatal(err)
	}
	if groups, err := fs.Groups(); err != nil || len(groups) > 0 {
		t.Skipf("resctrl is in use here: groups %v, %v", groups, err)
	}
	m := open(t, false)
	m.Show(showControls)
	return resctrlNode{m, fs.Root}
}

func (d resctrlNode) path(group string, file ...string) string {
	return filepath.Join(append([]string{d.root, strings.TrimPrefix(group, node.DefaultControlGroup)}, file...)...)
}

func (d resctrlNode) MakeControl(group string) error   { return os.Mkdir(d.path(group), 0o755) }
func (d resctrlNode) RemoveControl(group string) error { return resctrlFS(d.root).Remove(group) }

func resctrlFS(root string) *resctrl.FS { return &resctrl.FS{Root: root} }

func (d resctrlNode) ReadControl(group, file string) (string, error) {
	text, err := os.ReadFile(d.path(group, file))
	return string(text), err
}

func (d resctrlNode) WriteControl(group, file, text string) error {
	f, err := os.OpenFile(d.path(group, file), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteString(text)
	return err
}

func TestResctrlConformance(t *testing.T) {
	openResctrlNode(t) // skips the whole test if there is no resctrl
	conformance.RunControls(t, node.CgroupPath(groupName("resctrl")), func(t *testing.T) conformance.DividedNode {
		return openResctrlNode(t)
	})
}

// picture describes the state of resctrl: the groups, the resources that each
// may use, and the number of tasks outside the default group.
func (d resctrlNode) picture(t *testing.T) string {
	t.Helper()
	fs := resctrlFS(d.root)
	groups, err := fs.Groups()
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, g := range append([]string{resctrl.Default}, groups...) {
		text, err := d.ReadControl(g, "schemata")
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "%s: %s\n", g, text)
		if g == resctrl.Default {
			continue
		}
		tasks, err := fs.Tasks(g)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "%d tasks\n", len(tasks))
	}
	return b.String()
}

// TestResctrlIsRestoredAfterTheAgentDied leaves control groups, masks and moved
// tasks behind, like an agent that is killed. Another process must restore all
// of it.
func TestResctrlIsRestoredAfterTheAgentDied(t *testing.T) {
	d := openResctrlNode(t)
	s, err := d.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if s.Resctrl.Groups < 2 {
		t.Logf("%d control groups here: there is nothing to restore", s.Resctrl.Groups)
		return
	}
	before := d.picture(t)
	group := node.CgroupPath(groupName("died"))
	if err := d.MakeGroup(group); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.RemoveGroup(group) })
	pid, err := d.Start(group, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Stop(pid) })

	dir := t.TempDir()
	dead, err := host.Open(host.Options{Tree: d.tree, JournalDir: dir, Behalf: &journal.Session{PID: 1 << 22, Start: 1}})
	if err != nil {
		t.Fatal(err)
	}
	dead.Show(showControls)
	dead.Manage(node.Workload{ID: "be", Class: node.BE, Cgroup: group, ContentionRoot: group})
	if s, err = dead.Snapshot(t.Context()); err != nil {
		t.Fatal(err)
	}
	wants := []plan.Want{{Intent: plan.Set, Knob: node.Knob{Cgroup: group, File: node.FileControlGroup}, Value: node.ControlGroupsOf("BE")}}
	if len(s.Resctrl.L3.Domains) > 0 {
		by := node.Ways{}
		for _, id := range s.Resctrl.L3.Domains {
			by[id] = 1
		}
		wants = append(wants, plan.Want{Intent: plan.Set, Knob: node.Knob{ControlGroup: "BE", File: node.FileL3}, Value: node.L3Of(by)})
	}
	if len(s.Resctrl.MBDomains) > 0 {
		by := map[node.CacheID]uint64{}
		for _, id := range s.Resctrl.MBDomains {
			by[id] = max(s.Knobs.Kernel.MB.Least, 1)
		}
		wants = append(wants, plan.Want{Intent: plan.Set, Knob: node.Knob{ControlGroup: "BE", File: node.FileMB}, Value: node.MBOf(by)})
	}
	for _, step := range plan.Diff(s.Knobs, wants) {
		if err := dead.Apply(t.Context(), step); err != nil {
			t.Fatal(err)
		}
	}
	if d.picture(t) == before {
		t.Fatal("nothing was changed")
	}
	if s, err = dead.Snapshot(t.Context()); err != nil || len(s.Cache) != 1 {
		t.Errorf("the snapshot has %d classes that are measured, want BE; %v", len(s.Cache), err)
	}

	next, err := host.Open(host.Options{Tree: d.tree, JournalDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer next.Close()
	planned, err := next.RestorePlan(t.Context())
	if err != nil || !cmp.Equal(planned.Controls, []string{"BE"}) {
		t.Errorf("the plan of the restore: %v, %v", planned, err)
	}
	report, err := next.Restore(t.Context())
	if err != nil || !cmp.Equal(report.Controls, []string{"BE"}) {
		t.Errorf("restored: %v, %v", report, err)
	}
	if diff := cmp.Diff(before, d.picture(t)); diff != "" {
		t.Errorf("resctrl before and after (-before +after):\n%s", diff)
	}
	if again, err := next.Restore(t.Context()); err != nil || !again.Empty() {
		t.Errorf("a second restore: %v, %v", again, err)
	}
}

// TestResctrlChildrenAreInTheGroupOfTheirParent shows that a child process
// starts in the control group of its parent. So Tenon need not move a task more
// than once.
func TestResctrlChildrenAreInTheGroupOfTheirParent(t *testing.T) {
	d := openResctrlNode(t)
	if info, err := resctrlFS(d.root).Info(); err != nil || info.Groups < 2 {
		t.Logf("%d control groups here, %v", info.Groups, err)
		return
	}
	if err := d.MakeControl("tenon-bench"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.RemoveControl("tenon-bench"); err != nil {
			t.Error(err)
		}
	})
	sh := exec.Command("sh", "-c", "read go; sleep 60 & echo $!; wait")
	in, err := sh.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := sh.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := sh.Start(); err != nil {
		t.Fatal(err)
	}
	child := 0
	t.Cleanup(func() {
		if p, err := os.FindProcess(child); err == nil && child > 0 {
			_ = p.Kill()
		}
		_ = sh.Process.Kill()
		_ = sh.Wait()
	})
	if err := resctrlFS(d.root).Add("tenon-bench", sh.Process.Pid); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(in, "go")
	line, err := bufio.NewReader(out).ReadString('\n')
	if _, scanErr := fmt.Sscan(line, &child); err != nil || scanErr != nil {
		t.Fatalf("the shell said %q: %v, %v", line, err, scanErr)
	}
	tasks, err := resctrlFS(d.root).Tasks("tenon-bench")
	if diff := cmp.Diff([]int{sh.Process.Pid, child}, tasks); err != nil || diff != "" {
		t.Errorf("%v (-parent and child +tasks):\n%s", err, diff)
	}
}

func TestResctrlCapabilities(t *testing.T) {
	d := openResctrlNode(t)
	info, err := resctrlFS(d.root).Info()
	if err != nil {
		t.Fatal(err)
	}
	can := d.Capabilities()
	for m, has := range map[node.Feature]bool{
		node.FeatureResctrlL3: info.L3.Mask != 0 && info.Groups > 1, node.FeatureResctrlMB: info.MB.Divisible && info.Groups > 1,
	} {
		if a := can[m]; a.Verdict == node.Unknown || a.Verdict == node.Yes != has || !strings.Contains(a.Why, d.root) {
			t.Errorf("%s: %s: %s; want %v", m, a.Verdict, a.Why, has)
		}
		t.Logf("%s: %s: %s", m, can[m].Verdict, can[m].Why)
	}
}
