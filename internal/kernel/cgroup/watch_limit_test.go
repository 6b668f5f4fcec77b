package cgroup

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// runInNamespace runs the calling test again, as root of a new user namespace.
// It returns true in that second run. In the namespace the test can lower
// limits (/proc/sys/user, namespaces(7)) without an effect on other processes.
func runInNamespace(t *testing.T) bool {
	t.Helper()
	const mark, refused = "TENON_TEST_NAMESPACE", "limits cannot be lowered here"
	if os.Getenv(mark) != "" {
		if err := lowerLimit("max_inotify_watches", 1000); err != nil {
			t.Fatal(refused, err)
		}
		return true
	}
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), mark+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
	}
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	switch {
	case err == nil:
	case !errors.As(err, &exit) || bytes.Contains(out, []byte(refused)):
		if os.Getenv("TENON_TEST_STRICT") == "1" && os.Geteuid() == 0 {
			t.Fatalf("needs a user namespace: %v\n%s", err, out)
		}
		t.Skipf("needs a user namespace: %v", err)
	default:
		t.Errorf("%v in a user namespace:\n%s", err, out)
	}
	return false
}

// lowerLimit sets a limit of the user namespace.
func lowerLimit(limit string, to int) error {
	return os.WriteFile("/proc/sys/user/"+limit, fmt.Append(nil, to), 0)
}

func limited(t *testing.T, limit string, to int) {
	t.Helper()
	if err := lowerLimit(limit, to); err != nil {
		t.Fatal(err)
	}
}

// quickWatcher returns a Watcher with a short time between scans.
func quickWatcher(t *testing.T, tree *Tree) *Watcher {
	t.Helper()
	w, err := tree.watch(t.Context(), 5*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	return w
}

func TestWatcherLooksWhereItMayNotWatch(t *testing.T) {
	if !runInNamespace(t) {
		return
	}
	for name, c := range map[string]struct {
		limit string
		few   int
		want  string
	}{
		"too few watches":      {"max_inotify_watches", 2, "no space left on device (fs.inotify.max_user_watches); scanning all cgroups every 5ms instead"},
		"no inotify at all":    {"max_inotify_instances", 0, "start inotify: too many open files"},
		"no watch at all":      {"max_inotify_watches", 0, "watch cgroup the root cgroup: no space left on device"},
		"just too few watches": {"max_inotify_watches", 5, "fs.inotify.max_user_watches"},
	} {
		t.Run(name, func(t *testing.T) {
			tree := fixture(t, onlyV2+"-- v2/a/b/c/cpu.weight --\n-- v2/d/e/cpu.weight --\n")
			root := tree.hierarchies[0].mount
			limited(t, c.limit, c.few)
			w := quickWatcher(t, tree)
			if got := w.Groups(); !slices.Equal(got, walk(t, root)) {
				t.Errorf("it begins with %v", got)
			}
			if err := w.DegradedReason(); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("degraded by %v, want %s", err, c.want)
			}
			makeDir(t, root, "a/b/c/new")
			removeDir(t, root, "d/e")
			changes(t, w)
			seesTruth(t, w, root)
			churn(t, root, 2, 200, true)
			seesTruth(t, w, root)

			limited(t, c.limit, 1000)
			waitUntil(t, func() bool { return w.DegradedReason() == nil }, func() string { return w.DegradedReason().Error() })
			seesTruth(t, w, root)
			seesWatches(t, w)
			churn(t, root, 2, 200, true)
			seesTruth(t, w, root)
			seesWatches(t, w)
		})
	}
}
