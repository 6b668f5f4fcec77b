package host

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/machine/journal"
	"tenon.sh/tenon/internal/machine/restore"
	"tenon.sh/tenon/internal/model/node"
)

// TestWhatTheKernelHasDroppedIsForgotten disables a controller of a group that
// still exists, and unmounts resctrl. Then there is nothing to restore, now or
// later, so the journal must forget the knobs.
func TestWhatTheKernelHasDroppedIsForgotten(t *testing.T) {
	for name, forget := range map[string]func(h *Host, lost []node.Knob) error{
		"by a release": func(h *Host, lost []node.Knob) error {
			var errs []error
			for _, k := range lost {
				errs = append(errs, h.Apply(t.Context(), plan.Step{Knob: k, To: node.Maximum{Max: 9}, Release: true}))
			}
			return errors.Join(errs...)
		},
		"by a restore": func(h *Host, lost []node.Knob) error {
			planned, err := h.RestorePlan(t.Context())
			done, restoreErr := h.Restore(t.Context())
			for _, r := range []restore.Report{planned, done} {
				if len(r.Dropped) != len(lost) || len(r.Restored)+len(r.Left)+len(r.Gone) > 0 {
					t.Errorf("the report is %+v, want %v dropped", r, lost)
				}
				for _, k := range lost {
					if !slices.Contains(r.Dropped, k) {
						t.Errorf("%v is not among the dropped %v", k, r.Dropped)
					}
				}
			}
			return errors.Join(err, restoreErr)
		},
	} {
		h, _, procfs := countedHost(t, "job")
		procfs("self/mountinfo", "24 1 0:22 / /sys rw - sysfs sysfs rw") // without resctrl
		j, err := journal.Open(t.TempDir(), "boot", journal.Session{PID: 1})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = j.Close() })
		h.journal = j
		withKnobs(h)
		inode, err := h.tree.Inode("job")
		if err != nil {
			t.Fatal(err)
		}
		control := node.Knob{Cgroup: "job", File: node.FileControlGroup}
		err = errors.Join(
			j.Intend(tasks("job"), inode, node.Maximum{Max: 9}, node.Maximum{Max: 5}), j.RecordValue(tasks("job"), node.Maximum{Max: 5}),
			j.Intend(control, inode, node.ControlGroupsOf(node.DefaultControlGroup), node.ControlGroupsOf("BE")), j.RecordValue(control, node.ControlGroupsOf("BE")))
		if err != nil {
			t.Fatal(err)
		}
		dir, err := h.tree.Dir("pids", "job")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(filepath.Join(dir, "pids.max")); err != nil {
			t.Fatal(err)
		}
		if err := forget(h, []node.Knob{tasks("job"), control}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if s, err := j.State(); err != nil || !s.Empty() {
			t.Errorf("%s: the journal still has %v, %v", name, s.Touches, err)
		}
	}
}
