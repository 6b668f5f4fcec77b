package kubectl

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// fake returns a client of a program that stands in for kubectl.
func fake(t *testing.T, script string) Client {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubectl")
	// If another test forked meanwhile, its process would hold the file open
	// for writing, and the kernel would not execute the file (ETXTBSY).
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return Client{Path: path}
}

// watcherVar is an environment variable with the path of a program. If it is
// set, this test binary watches with this program until it is killed.
const watcherVar = "TENON_KUBECTL_TEST_WATCHER"

func TestMain(m *testing.M) {
	if path := os.Getenv(watcherVar); path != "" {
		fmt.Println(Client{Path: path}.Watch(context.Background(), func(line string) (bool, error) {
			fmt.Println(line)
			return false, nil
		}, "get", "pods", "--watch"))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// TestAWatchEndsWithAKilledLab kills a process that watches. The command must end,
// too: else it would read from the API server for ever.
func TestAWatchEndsWithAKilledLab(t *testing.T) {
	k := fake(t, "echo $$; exec sleep 1000")
	lab := exec.Command("/proc/self/exe")
	lab.Env = append(os.Environ(), watcherVar+"="+k.Path)
	out, err := lab.StdoutPipe()
	if err == nil {
		err = lab.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	pid := 0
	_, err = fmt.Fscanln(out, &pid)
	if err := errors.Join(err, lab.Process.Kill()); err != nil {
		t.Fatal(err)
	}
	_ = lab.Wait() // it was killed
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(time.Millisecond) {
		// A process that has ended may stay a zombie if init does not reap it.
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil || strings.Contains(string(stat), ") Z ") {
			return
		}
		if time.Now().After(end) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
			t.Fatal("the command of the watch still runs")
		}
	}
}

func TestKubectlComplains(t *testing.T) {
	k := fake(t, "echo no such node >&2; exit 1")
	var v any
	if err := k.Get(t.Context(), &v, "node", "x"); err == nil || !strings.Contains(err.Error(), "kubectl get") || !strings.Contains(err.Error(), "no such node") {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := k.Get(ctx, &v, "node", "x"); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
}

// TestAWatchEndsWhenItsReaderHasSeenEnough also checks that Watch starts the
// command again when the API server ends the watch.
func TestAWatchEndsWhenItsReaderHasSeenEnough(t *testing.T) {
	k := fake(t, "echo one; echo two")
	seen := map[string]int{}
	err := k.Watch(t.Context(), func(line string) (bool, error) {
		seen[line]++
		return seen["two"] == 2, nil
	}, "get", "pods", "--watch")
	if err != nil || seen["one"] != 2 {
		t.Errorf("seen %v: %v", seen, err)
	}
	k = fake(t, "echo one; exec sleep 1000")
	if err := k.Watch(t.Context(), func(string) (bool, error) { return true, nil }, "get"); err != nil {
		t.Errorf("a watch that goes on: %v", err)
	}
	refused := errors.New("not this")
	if err := k.Watch(t.Context(), func(string) (bool, error) { return false, refused }, "get"); !errors.Is(err, refused) {
		t.Errorf("the reader's error: %v", err)
	}
	k = fake(t, "echo forbidden >&2; exit 1")
	if err := k.Watch(t.Context(), func(string) (bool, error) { return false, nil }, "get", "pods"); err == nil || !strings.Contains(err.Error(), "forbidden") {
		t.Errorf("a watch that is refused: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := k.Watch(ctx, func(string) (bool, error) { return false, nil }, "get"); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
}

func TestPodsWithoutRoomAreDescribed(t *testing.T) {
	state, unplaced := Waiting(map[string]Pod{"x": {Name: "x", Phase: "Running", Started: "now"}, "y": {Name: "y", Phase: "Pending", Scheduled: Unschedulable}}, 3)
	if !unplaced || state != "not all pods found room at once: y: Pending Unschedulable; 1 pods do not exist yet" {
		t.Errorf("%q, %v", state, unplaced)
	}
	if state, unplaced := Waiting(map[string]Pod{"y": {Name: "y", Phase: "Pending", Waiting: []string{"ErrImagePull"}}}, 1); unplaced || state != "y: Pending ErrImagePull" {
		t.Errorf("%q, %v", state, unplaced)
	}
}

// TestAWatchEndsAtALineThatIsTooLong has a program that would print for ever.
func TestAWatchEndsAtALineThatIsTooLong(t *testing.T) {
	err := fake(t, "exec tr '\\0' x </dev/zero").Watch(t.Context(), func(string) (bool, error) { return false, nil }, "get", "pods")
	if err == nil || !strings.Contains(err.Error(), "read its output: ") || len(err.Error()) > 500 {
		t.Errorf("error %v", err)
	}
}

// TestTheReasonOfTheServerIsACode checks that the error of a command wraps the reason
// that the API server gives, and no word of another message.
func TestTheReasonOfTheServerIsACode(t *testing.T) {
	for said, want := range map[string]Reason{
		`Error from server (NotFound): leases.coordination.k8s.io "tenon-lab" not found`:     NotFound,
		`warning: old\nError from server (AlreadyExists): error when creating "STDIN": x`:    AlreadyExists,
		`Error from server (InternalError): failed calling webhook "NotFound": (NotFound) x`: "InternalError",
		`error: unknown flag (NotFound)`: "",
	} {
		_, err := fake(t, "printf '"+said+"' >&2; exit 1").Do(t.Context(), "", "get", "lease")
		var got Reason
		if errors.As(err, &got); err == nil || got != want || !strings.Contains(err.Error(), "kubectl get lease: exit status 1: ") {
			t.Errorf("%q: reason %q, want %q; error %v", said, got, want, err)
		}
	}
}
