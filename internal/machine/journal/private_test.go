package journal

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestAJournalOfAnotherUserIsNotRead checks that a restore does not end the
// processes that another user wrote into a journal in a directory such as
// /tmp/tenon-1000.
func TestAJournalOfAnotherUserIsNotRead(t *testing.T) {
	line := `{"op":"spawned","process":{"pid":1,"start":1},"by":{"pid":1,"start":1,"lab":true}}` + "\n"
	planted := func(t *testing.T) (top, dir string) {
		t.Helper()
		top = t.TempDir()
		dir = filepath.Join(top, "state")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "journal-boot.jsonl"), []byte(line), 0o600); err != nil {
			t.Fatal(err)
		}
		return top, dir
	}
	refused := func(t *testing.T, dir, want string) {
		t.Helper()
		if _, err := Open(dir, "boot", Session{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Open: %v, want %q", err, want)
		}
	}
	t.Run("one's own", func(t *testing.T) {
		_, dir := planted(t)
		j, err := Open(dir, "boot", Session{})
		if err != nil {
			t.Fatal(err)
		}
		if s, err := j.State(); err != nil || len(s.Processes) != 1 {
			t.Errorf("%d processes, %v: want the one of the journal", len(s.Processes), err)
		}
	})
	t.Run("writable for everybody", func(t *testing.T) {
		_, dir := planted(t)
		if err := os.Chmod(dir, 0o777); err != nil {
			t.Fatal(err)
		}
		refused(t, dir, "every user can write")
	})
	t.Run("made after Open", func(t *testing.T) {
		top, dir := planted(t)
		j, err := Open(filepath.Join(top, "later"), "boot", Session{})
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(dir, 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(dir, filepath.Join(top, "later")); err != nil {
			t.Fatal(err)
		}
		if s, err := j.State(); err == nil {
			t.Errorf("a state with %d processes", len(s.Processes))
		}
		if _, err := j.acquire(); err == nil {
			t.Error("the lock file was opened")
		}
	})
	t.Run("of another user", func(t *testing.T) {
		if os.Geteuid() != 0 {
			t.Skip("only root can give a directory to another user")
		}
		top, dir := planted(t)
		if err := os.Symlink(dir, filepath.Join(top, "link")); err != nil {
			t.Fatal(err)
		}
		if err := os.Lchown(filepath.Join(top, "link"), 65534, 65534); err != nil {
			t.Fatal(err)
		}
		refused(t, filepath.Join(top, "link"), "belongs to user 65534")
		if err := os.Chown(dir, 65534, 65534); err != nil {
			t.Fatal(err)
		}
		refused(t, dir, "belongs to user 65534")
	})
}

// TestAJournalBehindALinkIsRefused puts a symbolic link in the place of each file
// of the journal. No target is read or written.
func TestAJournalBehindALinkIsRefused(t *testing.T) {
	for _, name := range []string{"journal-boot.jsonl", "journal-boot.jsonl.next", "journal.lock"} {
		dir, target := t.TempDir(), filepath.Join(t.TempDir(), "target")
		if err := os.WriteFile(target, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
		j, err := Open(dir, "boot", Session{})
		if err != nil {
			t.Fatal(err)
		}
		if err := j.RecordGroup("a"); err == nil || !strings.Contains(err.Error(), filepath.Join(dir, name)) {
			t.Errorf("%s is a link: %v", name, err)
		}
		_ = j.Close()
		if info, err := os.Stat(target); err != nil || info.Size() > 0 || info.Mode().Perm() != 0o644 {
			t.Errorf("%s is a link: its target changed to %d bytes, mode %v (%v)", name, info.Size(), info.Mode(), err)
		}
	}
}
