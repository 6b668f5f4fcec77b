package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// readOnlyVar is an environment variable. If it is set, this test binary runs
// in a new mount namespace. It mounts /sys and /proc read-only and executes the
// command in its arguments. The value is the path of a file that must then
// refuse writes.
const readOnlyVar = "TENON_E2E_READ_ONLY"

// readOnly mounts the file systems and executes the command. It returns only
// after an error.
func readOnly(probe string) error {
	// The mounts must not propagate to the mount namespace of the machine.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make the mounts private: %w", err)
	}
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(text)) {
		at := strings.Fields(line)[4]
		if !strings.HasPrefix(at+"/", "/sys/") && !strings.HasPrefix(at+"/", "/proc/") {
			continue
		}
		if err := unix.Mount("", at, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""); err != nil {
			return fmt.Errorf("mount %s read-only: %w", at, err)
		}
	}
	switch f, err := os.OpenFile(probe, os.O_WRONLY, 0); {
	case err == nil:
		return errors.Join(fmt.Errorf("%s can be written on a read-only mount", probe), f.Close())
	case !errors.Is(err, unix.EROFS):
		return err
	}
	if err := os.Unsetenv(readOnlyVar); err != nil {
		return err
	}
	return syscall.Exec(os.Args[1], os.Args[1:], os.Environ())
}

// looks runs tenon with /sys and /proc mounted read-only.
func (s *site) looks(args ...string) (string, error) {
	s.t.Helper()
	self, err := os.Executable()
	if err != nil {
		s.t.Fatal(err)
	}
	cmd := exec.Command(self, append([]string{filepath.Join(s.bin, "tenon"), "--state-dir", s.state}, args...)...)
	cmd.Env = append(os.Environ(), readOnlyVar+"="+filepath.Join(s.dir(job), "cgroup.procs"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	text, err := cmd.CombinedOutput()
	if errors.Is(err, unix.EPERM) {
		failIfStrict(s.t, "no mount namespace: "+err.Error())
	}
	return string(text), err
}

// changing matches parts of the output that may differ between two calls:
// amounts, ages, and the spaces of the columns that contain them. It also
// matches the capability cgroup.delegation with the lines that go on, because
// access(2) gives another answer on read-only mounts.
var changing = regexp.MustCompile(`(?m)^cgroup\.delegation .*(?:\n[ \t]+.*)*$|-*[0-9][0-9.]*[a-zA-Zµ%]*|[ \t]+`)

// TestReadingCommandsWriteNothing runs each read-only command twice. The normal
// run must not change any file of the site's cgroups. The other run has
// read-only mounts and must print the same. So a command that needs a write, or
// tries one, fails this test. If an agent runs, it changes knobs at any time,
// and the command only has to succeed.
func TestReadingCommandsWriteNothing(t *testing.T) {
	s := plantSite(t, generous)
	text, err := s.looks("run", "--qos", "BE", "--name", fmt.Sprint("look-", os.Getpid()), "--", "true")
	if !strings.Contains(text, "read-only file system") {
		t.Errorf("a command that writes can do so on read-only mounts: %v\n%s", err, text)
	}
	works := func(args ...string) string {
		t.Helper()
		text, err := s.looks(args...)
		if err != nil {
			t.Errorf("tenon %s, on read-only mounts: %v\n%s", strings.Join(args, " "), err, text)
		}
		return changing.ReplaceAllString(text, " ")
	}
	same := func(args ...string) {
		t.Helper()
		before := s.dump(t)
		diff := "never compared"
		for try := 0; try < 3 && diff != ""; try++ { // other cgroups may appear and vanish
			normal, err := exec.Command(filepath.Join(s.bin, "tenon"), append([]string{"--state-dir", s.state}, args...)...).CombinedOutput()
			if err != nil {
				t.Errorf("tenon %s: %v\n%s", strings.Join(args, " "), err, normal)
			}
			diff = cmp.Diff(changing.ReplaceAllString(string(normal), " "), works(args...))
		}
		if diff != "" {
			t.Errorf("tenon %s prints something else on read-only mounts:\n%s", strings.Join(args, " "), diff)
		}
		if diff := cmp.Diff(before, s.dump(t)); diff != "" {
			t.Errorf("tenon %s changed files:\n%s", strings.Join(args, " "), diff)
		}
	}
	same("doctor", "--all")
	same("plan")
	same("plan", "--config", s.config)
	same("plan", "--ls", string(s.path(service)), "--be", string(s.path(batch)))
	same("plan", "--qos", "BE", "--cpus", "500m", "--memory", "64Mi", "--", "true")
	d := s.tenond()
	s.bound()
	works("doctor")
	works("status")
	works("explain", string(s.path(batch)), "cpu.weight")
	works("explain", string(s.path(job)))
	d.stop()
	s.restore()
}
