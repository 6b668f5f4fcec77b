package lease

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestALeaseBehindALinkIsRefused puts a symbolic link in the place of each file of
// a lease. Its target stays as it is.
func TestALeaseBehindALinkIsRefused(t *testing.T) {
	const text = "mine"
	for _, name := range []string{leaseLock, leaseFile + ".next"} {
		dir, target := t.TempDir(), filepath.Join(t.TempDir(), "target")
		if err := os.WriteFile(target, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
		if l, err := Hold(dir, "boot", Holder{PID: os.Getpid()}); err == nil || !strings.Contains(err.Error(), filepath.Join(dir, name)) {
			t.Errorf("%s is a link: %v", name, err)
			if err == nil {
				_ = l.Close()
			}
		}
		now, err := os.ReadFile(target)
		info, statErr := os.Stat(target)
		if err != nil || statErr != nil || string(now) != text || info.Mode().Perm() != 0o644 {
			t.Errorf("%s is a link: its target has %q and the mode %v", name, now, info.Mode())
		}
	}
}
