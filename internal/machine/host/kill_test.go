package host

import (
	"os"
	"strings"
	"testing"

	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/machine/journal"
	"tenon.sh/tenon/internal/model/node"
)

// TestAGroupThatIsFrozenToBeKilledIsJournaled checks the journal during a kill
// that freezes the cgroup first. The journal must have an entry, so that a
// restore can thaw the cgroup if Tenon dies before the thaw. A kernel that
// kills without a freeze needs no entry.
func TestAGroupThatIsFrozenToBeKilledIsJournaled(t *testing.T) {
	for name, c := range map[string]struct {
		kills bool
		want  []string
	}{
		"before Linux 5.14": {false, []string{"intend", "forget"}},
		"with cgroup.kill":  {true, nil},
	} {
		h, write, _ := countedHost(t, "job")
		write("job", "cgroup.procs", "")
		write("job", "cgroup.freeze", "0")
		write("job", "cgroup.events", "populated 0\nfrozen 1")
		if c.kills {
			write("job", "cgroup.kill", "")
		}
		j, err := journal.Open(t.TempDir(), "boot", journal.Session{PID: 1})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = j.Close() })
		h.journal = j
		withKnobs(h)
		k := node.Knob{Cgroup: "job", File: node.FileRun}
		if err := h.Apply(t.Context(), plan.Step{Knob: k, To: node.Ended}); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		text, err := os.ReadFile(j.Path())
		if err != nil && c.want != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSpace(string(text)), "\n")[1:] // without the first line of the file
		for i, op := range c.want {
			if i >= len(lines) || !strings.Contains(lines[i], `"op":"`+op+`"`) || !strings.Contains(lines[i], `"file":"run"`) {
				t.Errorf("%s: the journal is\n%s\nwant %v", name, text, c.want)
			}
		}
		if c.want == nil && len(text) > 0 {
			t.Errorf("%s: the journal is\n%s", name, text)
		}
		if s, err := j.State(); err != nil || !s.Empty() {
			t.Errorf("%s: %v is left, %v", name, s.Touches, err)
		}
	}
}

// TestAnAgentThatDiesDuringAKillLeavesNothingFrozen uses the journal of a
// process that was killed just before it thawed a cgroup. A restore must thaw
// the cgroup.
func TestAnAgentThatDiesDuringAKillLeavesNothingFrozen(t *testing.T) {
	h, write, _ := countedHost(t, "job")
	write("job", "cgroup.freeze", "1")
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
	if err := j.Intend(node.Knob{Cgroup: "job", File: node.FileRun}, inode, node.Running, node.Frozen); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Restore(t.Context()); err != nil {
		t.Fatal(err)
	}
	if frozen, err := h.tree.IsFrozen("job"); frozen || err != nil {
		t.Errorf("frozen: %v, %v", frozen, err)
	}
	if s, err := j.State(); err != nil || !s.Empty() {
		t.Errorf("%v is left, %v", s.Touches, err)
	}
}
