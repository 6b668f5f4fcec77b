package restore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tenon.sh/tenon/internal/machine/statedir"
	"tenon.sh/tenon/internal/model/node"
)

// TestStateOfAnotherFormIsRefusedByName has a file of another form in the state
// directory. While changes are in force, tenond must not start and must leave the
// file; without changes, nothing needs the file.
func TestStateOfAnotherFormIsRefusedByName(t *testing.T) {
	unreadable := errors.New("unreadable")
	for name, text := range map[string]string{
		"ladder.json":           `{"boot_id":"b","asked":{"at":"2026-03-01T12:00:00Z"}}`,
		statedir.MemoryFile:     `{"boot_id":"b","uptime_ns":1,"state":{"pins":{"db":"3"}}}`,
		statedir.MechanismsFile: fmt.Sprintf(`{"version":%d,"boot_id":"b"}`, statedir.Version+1),
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, x := range []struct {
			left    Report
			err     error
			refused bool
		}{
			{Report{Removed: []node.CgroupPath{"a"}}, nil, true},
			{Report{}, unreadable, true},
			{Report{}, nil, false},
		} {
			err := RefuseOtherForms(t.Context(), dir, func(context.Context) (Report, error) { return x.left, x.err }, slog.New(slog.DiscardHandler))
			_, gone := os.Stat(path)
			switch {
			case x.refused && (err == nil || !strings.HasPrefix(err.Error(), path+": it was written by another release") || !strings.Contains(err.Error(), "tenon restore --state-dir "+dir)):
				t.Errorf("%s with %+v: %v", name, x.left, err)
			case x.err != nil && !errors.Is(err, x.err):
				t.Errorf("%s: %v", name, err)
			case !x.refused && err != nil:
				t.Errorf("%s without changes: %v", name, err)
			case (gone != nil) == x.refused:
				t.Errorf("%s, refused %v: %v", name, x.refused, gone)
			}
		}
	}
}

// TestAStateFileThatIsNoJSONIsLeftToItsReader has a torn file, and one of the form
// of this program.
func TestAStateFileThatIsNoJSONIsLeftToItsReader(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{statedir.MemoryFile: "{", statedir.MechanismsFile: fmt.Sprintf(`{"version":%d}`, statedir.Version)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if paths, err := otherForms(dir); len(paths) > 0 || err != nil {
		t.Errorf("%v, %v", paths, err)
	}
}
