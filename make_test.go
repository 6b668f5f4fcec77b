package tenon_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestMakeSaysWhatIsMissing ends a cluster in a folder from which none was started, and
// asks for the rights of the experiment as a user who has none.
func TestMakeSaysWhatIsMissing(t *testing.T) {
	file, err := filepath.Abs("Makefile")
	if err != nil {
		t.Fatal(err)
	}
	run := func(target string, as *syscall.Credential) (string, error) {
		cmd := exec.CommandContext(t.Context(), "make", "-f", file, target)
		cmd.Dir, cmd.SysProcAttr = "/", &syscall.SysProcAttr{Credential: as, Setsid: true} // sudo may ask no terminal
		text, err := cmd.CombinedOutput()
		return string(text), err
	}
	if text, err := run("cluster-down", nil); err != nil || !strings.Contains(text, "cluster-down: no bin/cluster here") {
		t.Errorf("cluster-down without a cluster: %v, %s", err, text)
	}
	if os.Geteuid() != 0 {
		return // this user may be allowed to use sudo
	}
	if text, err := run("may-be-root", &syscall.Credential{Uid: 65534, Gid: 65534}); err == nil || !strings.Contains(text, "needs root") {
		t.Errorf("make demo as nobody: %v, %s", err, text)
	}
}
