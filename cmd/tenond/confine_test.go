package main

import (
	"errors"
	"os"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestAnObserverWithTheRightsToActSaysWhatToDo runs confine in a thread with CAP_SYS_ADMIN
// and without CAP_SETPCAP, as in the pod of an agent that acts. It must fail, and name what
// to do there and in the unit of a service. The thread ends with the test.
func TestAnObserverWithTheRightsToActSaysWhatToDo(t *testing.T) {
	if admin, err := hasCapability(unix.CAP_SYS_ADMIN); err != nil || !admin {
		if os.Getenv("TENON_TEST_STRICT") == "1" {
			t.Fatalf("needs CAP_SYS_ADMIN: %v", err)
		}
		t.Skipf("needs CAP_SYS_ADMIN: %v", err)
	}
	ended := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlock it: the thread is of no use any more
		header, data, err := capabilities()
		if err == nil {
			data[0].Effective &^= 1 << unix.CAP_SETPCAP
			data[0].Permitted &^= 1 << unix.CAP_SETPCAP
			err = unix.Capset(&header, &data[0])
		}
		if err == nil {
			err = confine()
		}
		ended <- err
	}()
	err := <-ended
	if !errors.Is(err, unix.EPERM) {
		t.Fatalf("confine: %v", err)
	}
	for pod, want := range map[bool]string{false: "tenond install", true: "mode=observe"} {
		said := asUnconfinable(err, pod)
		var fault faultsError
		if !errors.As(said, &fault) || !errors.Is(said, unix.EPERM) || !strings.Contains(said.Error(), want) {
			t.Errorf("in a pod: %v: %v", pod, said)
		}
	}
	if said := asUnconfinable(unix.ENOMEM, false); !errors.Is(said, unix.ENOMEM) || strings.Contains(said.Error(), "tenond install") {
		t.Errorf("another error: %v", said)
	}
	if said := asUnconfinable(nil, false); said != nil {
		t.Errorf("no error: %v", said)
	}
}
