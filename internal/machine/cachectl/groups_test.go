package cachectl

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tenon.sh/tenon/internal/machine/journal"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// groupsOf returns the control groups of a resctrl made of plain files.
func groupsOf(t *testing.T, files map[string]string) (*Groups, string) {
	t.Helper()
	root, procfs := t.TempDir(), t.TempDir()
	files["tasks"] = ""
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	mount := "31 24 0:28 / " + root + " rw - resctrl resctrl rw\n"
	if err := errors.Join(os.Mkdir(filepath.Join(procfs, "self"), 0o755), os.WriteFile(filepath.Join(procfs, "self/mountinfo"), []byte(mount), 0o644)); err != nil {
		t.Fatal(err)
	}
	j, err := journal.Open(t.TempDir(), "boot", journal.Session{PID: 1, Start: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Close() })
	return New(procfs, nil, j), root
}

func amd(files map[string]string) map[string]string {
	for name, text := range map[string]string{
		"info/L3/num_closids": "16\n", "info/L3/cbm_mask": "ffff\n", "info/L3/min_cbm_bits": "1\n", "info/L3/sparse_masks": "1\n",
		"info/MB/num_closids": "8\n", "info/MB/min_bandwidth": "1\n", "info/MB/bandwidth_gran": "1\n", "info/MB/delay_linear": "0\n",
		"info/L3_MON/mon_features": "llc_occupancy\nmbm_total_bytes\n",
		"schemata":                 "    MB:0= 100;1=2048\n    L3:0=ffff;1=ffff\n", "mode": "shareable\n",
	} {
		files[name] = text
	}
	return files
}

func control(files map[string]string, name, schemata, tasks string) {
	files[name+"/schemata"], files[name+"/tasks"], files[name+"/mode"] = schemata, tasks, "shareable\n"
}

func (c *Groups) lookedAt(t *testing.T) node.Snapshot {
	t.Helper()
	c.wanted = true
	s := node.Snapshot{At: time.Unix(100, 0), Knobs: node.Knobs{Now: map[node.Knob]node.Value{}}}
	state, err := c.journal.State()
	if err != nil {
		t.Fatal(err)
	}
	c.at = time.Time{}
	c.Fill(&s, state.Touches)
	return s
}

func TestASnapshotTellsWhoseControlGroupsThereAre(t *testing.T) {
	files := amd(map[string]string{})
	control(files, "BE", "MB:0=2048;1=2048\nL3:0=ffff;1=ffff\n", "")
	control(files, "LS", "MB:0=16;1=16\nL3:0=ff;1=ff\n", "77\n")
	control(files, "virt", "MB:0=16;1=16\nL3:0=ff;1=ff\n", "")
	files["BE/mon_data/mon_L3_00/llc_occupancy"], files["BE/mon_data/mon_L3_00/mbm_total_bytes"] = "4096\n", "Unavailable\n"
	c, _ := groupsOf(t, files)
	s := c.lookedAt(t)
	domains := []node.CacheID{0, 1}
	want := node.Resctrl{
		Groups: 8, Others: 2, Taken: []string{"LS"}, MBDomains: domains,
		L3: node.CacheWays{Domains: domains, Mask: 0xffff, Least: 1, Sparse: true},
	}
	if diff := cmp.Diff(want, s.Resctrl); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if want := (node.Bandwidth{Unit: node.BandwidthEighths, Least: 1, Step: 1, Most: 2048}); s.Knobs.Kernel.MB != want {
		t.Errorf("%+v, want %+v", s.Knobs.Kernel.MB, want)
	}
	knobs := map[node.Knob]node.Value{
		{ControlGroup: "BE", File: node.FileL3}: node.L3{Schema: "0=ffff;1=ffff"},
		{ControlGroup: "BE", File: node.FileMB}: node.MB{Schema: "0=2048;1=2048"},
	}
	if diff := cmp.Diff(knobs, s.Knobs.Now); diff != "" {
		t.Errorf("what others use must not show (-want +got):\n%s", diff)
	}
	if use := s.Cache[node.BE]; len(s.Cache) != 1 || use.Occupancy != node.Some(unit.Bytes(4096)) || use.Traffic.Known() {
		t.Errorf("%+v", s.Cache)
	}
}

func TestASnapshotTellsWhetherALimitHoldsForACore(t *testing.T) {
	for mode, want := range map[string]bool{"max": true, "per-thread": false} {
		c, _ := groupsOf(t, amd(map[string]string{"info/MB/thread_throttle_mode": mode + "\n"}))
		if got := c.lookedAt(t).Resctrl.MBPerCore; got != want {
			t.Errorf("%s: %v", mode, got)
		}
	}
}

func TestWithoutAMountTheSnapshotSaysWhatToType(t *testing.T) {
	c, _ := groupsOf(t, amd(map[string]string{}))
	if err := os.WriteFile(filepath.Join(c.proc, "self/mountinfo"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if s := c.lookedAt(t); !strings.Contains(s.Resctrl.Missing, MountCommand) || s.Resctrl.Groups != 0 {
		t.Errorf("%+v", s.Resctrl)
	}
}

func TestAGroupThatOthersUseIsNotTaken(t *testing.T) {
	files := amd(map[string]string{})
	control(files, "BE", "L3:0=ff;1=ff\n", "77\n")
	c, root := groupsOf(t, files)
	if err := c.Make("BE"); err == nil || !strings.Contains(err.Error(), "another component") {
		t.Errorf("%v", err)
	}
	if text, _ := os.ReadFile(filepath.Join(root, "BE/schemata")); string(text) != files["BE/schemata"] {
		t.Errorf("schemata became %q", text)
	}
	if err := c.Make(node.DefaultControlGroup); err == nil {
		t.Error("the default group was given away")
	}
	if state, err := c.journal.State(); err != nil || !state.Empty() {
		t.Errorf("the journal holds %v, %v", state, err)
	}
}

func TestThreadsFromOutsideDoNotMakeAGroupForeign(t *testing.T) {
	touch := journal.Touch{Before: node.ControlGroupsOf("/"), Written: node.ControlGroupsOf("BE")}
	for groups, want := range map[string]bool{"BE": true, "/,BE": true, "/": true, "virt": false, "BE,virt": false} {
		if got := IsOurs(touch, node.ControlGroup{Groups: groups}); got != want {
			t.Errorf("%s: %v", groups, got)
		}
	}
	if IsOurs(journal.Touch{}, node.L3{Schema: "0=1"}) {
		t.Error("a mask is no control group")
	}
}
