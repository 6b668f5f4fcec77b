package journal

import (
	"errors"
	"os"
	"runtime"
	"syscall"
	"testing"
	"time"
)

// TestASignalDoesNotStopTheReserve sends signals to a thread while it allocates
// space of a tmpfs. The Go runtime sends itself such signals. On Linux 6.1, but
// not on 6.18, allocation fails here unless it is tried again.
func TestASignalDoesNotStopTheReserve(t *testing.T) {
	const folder, magic = "/dev/shm", 0x01021994
	var fs syscall.Statfs_t
	if err := syscall.Statfs(folder, &fs); err != nil || fs.Type != magic {
		t.Skipf("%s is no tmpfs (%v)", folder, err)
	}
	f, err := os.CreateTemp(folder, "tenon-test-")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := os.Remove(f.Name()); err != nil {
		t.Fatal(err)
	}
	const size = 64 << 20 // takes longer than the time between two signals
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	pid, thread, sent := os.Getpid(), syscall.Gettid(), make(chan struct{})
	go func() {
		defer close(sent)
		for range 100 {
			time.Sleep(100 * time.Microsecond)
			_, _, _ = syscall.RawSyscall(syscall.SYS_TGKILL, uintptr(pid), uintptr(thread), uintptr(syscall.SIGURG))
		}
	}()
	if err := fallocate(f, 0, size); err != nil {
		t.Error(err)
	}
	<-sent
}

func TestAnInterruptedCallIsMadeAgain(t *testing.T) {
	answers := []error{syscall.EINTR, syscall.EINTR, syscall.ENOSPC, nil}
	calls := 0
	err := repeatInterrupted(func() error {
		calls++
		return answers[calls-1]
	})
	if calls != 3 || !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("%d calls, and %v; want 3, and ENOSPC", calls, err)
	}
}
