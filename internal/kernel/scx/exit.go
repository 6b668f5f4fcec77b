package scx

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// An ExitKind is the reason for the end of a scheduler (enum scx_exit_kind of
// the kernel).
type ExitKind int

// The kinds.
const (
	ExitNone       ExitKind = 0    // the scheduler has not ended
	ExitDone       ExitKind = 1    // the scheduler was being unloaded
	ExitUnload     ExitKind = 64   // its owner unloaded it, or its owner died
	ExitSelf       ExitKind = 65   // its BPF program ended it: no Beat for Silence, or a thread waited long
	ExitKernel     ExitKind = 66   // the kernel ended it: CPU hotplug
	ExitSysrq      ExitKind = 67   // an operator pressed sysrq-S
	ExitError      ExitKind = 1024 // the kernel found a fault
	ExitErrorSelf  ExitKind = 1025 // the BPF program found a fault
	ExitErrorStall ExitKind = 1026 // a thread waited longer than the watchdog allows
)

// An Exit is the end of a scheduler, as the kernel reports it.
type Exit struct {
	Kind    ExitKind
	Code    int64  // the code from scx_bpf_exit, or from the kernel for ExitKernel
	Reason  string // the kernel's message
	Message string // further details from the kernel; may be empty
}

// restart is a bit of an exit code (SCX_ECODE_ACT_RESTART). The kernel sets it
// when a CPU went online or offline, to ask the owner to load the scheduler
// again.
const restart = 1 << 48

// Restart reports whether the scheduler ended only because a CPU went online or
// offline. The caller should then load it again with the new topology.
func (e Exit) Restart() bool { return e.Kind == ExitKernel && e.Code&restart != 0 }

// String describes the end in one sentence.
func (e Exit) String() string {
	if e.Kind == ExitNone {
		return "it runs"
	}
	text := fmt.Sprintf("exit kind %d, code %#x: %s", int(e.Kind), e.Code, e.Reason)
	if e.Message != "" {
		text += " (" + e.Message + ")"
	}
	return text
}

// readExit reads the record that ops.exit wrote.
func (s *Scheduler) readExit() (Exit, error) {
	var end scheduler613ScxEnd
	if err := s.kernel.Variables[scheduler613VarEnd].Get(&end); err != nil {
		return Exit{}, fmt.Errorf("read why the scheduler ended: %w", err)
	}
	return Exit{Kind: ExitKind(end.Kind), Code: end.Code, Reason: text(end.Reason[:]), Message: text(end.Message[:])}, nil
}

// text converts a C string of the kernel.
func text(c []int8) string {
	return unix.ByteSliceToString(unsafe.Slice((*byte)(unsafe.Pointer(&c[0])), len(c)))
}
