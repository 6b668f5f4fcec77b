package journal_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"tenon.sh/tenon/internal/machine/journal"
	"tenon.sh/tenon/internal/model/node"
)

func TestControlGroupsAreRemembered(t *testing.T) {
	dir, me := t.TempDir(), journal.Session{PID: 7, Start: 9}
	open := func() *journal.Journal {
		j, err := journal.Open(dir, "boot", me)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = j.Close() })
		return j
	}
	j := open()
	knob := node.Knob{ControlGroup: "BE", File: node.FileL3}
	for _, err := range []error{
		j.MadeControl("LS", 0), j.MadeControl("BE", 0), j.MadeControl("BE", 33),
		j.Intend(knob, 33, node.L3{Schema: "0=7"}, node.L3{Schema: "0=1"}),
		j.RemovedControl("LS"), j.RemovedControl("never made"),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	s, err := open().State()
	if diff := cmp.Diff(map[string]journal.MadeControl{"BE": {Inode: 33, By: me}}, s.Controls); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	if touch := s.Touches[knob]; touch.Inode != 33 || touch.Before != (node.L3{Schema: "0=7"}) || s.Empty() {
		t.Errorf("%+v", s)
	}
}
