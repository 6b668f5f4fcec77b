package daemon

import (
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestConfigurationThatIsNoFileIsRefused gives a pipe as the configuration
// file. The loop reads the file and must not wait for a writer.
func TestConfigurationThatIsNoFileIsRefused(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "tenon.yaml")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{pipe, "/dev/zero", filepath.Dir(pipe)} {
		if _, err := openConfig(path, true); err == nil || !strings.Contains(err.Error(), path+" is no regular file") {
			t.Errorf("error %v, want that %s is no regular file", err, path)
		}
	}
}
