package kerneltest

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const roleVar = "TENON_KERNELTEST_ROLE"

func TestMain(m *testing.M) {
	if os.Getenv(roleVar) == "sleep" {
		time.Sleep(time.Hour)
	}
	os.Exit(m.Run())
}

// TestAProcessOutlivesTheThreadOfItsTest starts a process from a thread that ends.
func TestAProcessOutlivesTheThreadOfItsTest(t *testing.T) {
	cmd := Command(roleVar, "sleep")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	tid := make(chan int)
	var once func()
	once = func() {
		runtime.LockOSThread() // never unlocked, so that the thread ends
		if unix.Gettid() == os.Getpid() {
			go once() // Go never ends the first thread
			return
		}
		Launch(t, cmd)
		tid <- unix.Gettid()
	}
	go once()
	thread := <-tid
	for exists := true; exists; time.Sleep(time.Millisecond) {
		_, err := os.Stat(fmt.Sprintf("/proc/self/task/%d", thread))
		exists = err == nil
	}
	_ = out.(*os.File).SetReadDeadline(time.Now().Add(200 * time.Millisecond))
	if _, err := out.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the process ended together with the thread: %v", err)
	}
}
