package daemon

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// lowerVar makes the test program lower its limits and call Ensure.
const lowerVar = "TENON_TEST_LOWER_LIMITS"

func TestMain(m *testing.M) {
	if os.Getenv(lowerVar) == "" {
		os.Exit(m.Run())
	}
	for _, n := range limitNeeds {
		limit := unix.Rlimit{Cur: 4096, Max: 4096}
		if n.resource == unix.RLIMIT_NOFILE {
			limit = unix.Rlimit{Cur: 24, Max: 24}
		}
		if os.Getenv(lowerVar) == "soft" {
			limit.Max = n.least
		}
		if err := unix.Setrlimit(n.resource, &limit); err != nil {
			fmt.Println("cannot lower limits:", err)
			return
		}
	}
	fmt.Println("ensured:", ensureLimits())
	for _, n := range limitNeeds {
		var limit unix.Rlimit
		fmt.Println(n.resource, unix.Getrlimit(n.resource, &limit), limit.Cur >= n.least)
	}
}

// TestSmallLimitsAreRaisedOrNamed runs a program with small limits: once with only
// small soft limits, and once with small hard limits as a user that may not raise
// them.
func TestSmallLimitsAreRaisedOrNamed(t *testing.T) {
	run := func(which string) string {
		t.Helper()
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(self)
		cmd.Env = append(os.Environ(), lowerVar+"="+which)
		if which == "hard" { // in a user namespace, no capability counts for the limits of the machine
			cmd.SysProcAttr = &syscall.SysProcAttr{
				Cloneflags:  syscall.CLONE_NEWUSER,
				UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}, GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
			}
		}
		text, err := cmd.CombinedOutput()
		if err != nil {
			t.Skipf("needs a user namespace: %v", err)
		}
		return string(text)
	}
	if got := run("soft"); got != fmt.Sprintf("ensured: <nil>\n%d <nil> true\n%d <nil> true\n", limitNeeds[0].resource, limitNeeds[1].resource) {
		t.Errorf("soft limits: %s", got)
	}
	got := run("hard")
	for _, want := range []string{"RLIMIT_NOFILE) from 24 to 512: operation not permitted", "RLIMIT_FSIZE) from 4096 to 67108864: operation not permitted"} {
		if !strings.Contains(got, want) {
			t.Errorf("hard limits: %s\nwant %s", got, want)
		}
	}
}
