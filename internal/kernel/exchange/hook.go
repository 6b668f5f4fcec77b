package exchange

import (
	"github.com/cilium/ebpf/btf"
)

// A Hook is where a Probe sees that a service sends data.
type Hook string

// The hooks, the best first.
const (
	// HookTracepoint is the tracepoint tcp_sendmsg_locked of Linux 6.16 and later.
	HookTracepoint Hook = "tracepoint"
	// HookFunction is the entry of the function tcp_sendmsg_locked. Before Linux
	// 6.5, data of files (sendfile) does not pass it.
	HookFunction Hook = "function"
)

// A step of the ladder is a hook with the program for it.
type step struct {
	hook    Hook
	what    string
	program string
	exists  func(kernel *btf.Spec) bool
}

// ladder has the hooks, the best first. The tracepoint sock_send_length is none of
// them: it comes after the data is sent, without the lock of the socket, so the
// next request may come before it.
var ladder = []step{
	{HookTracepoint, "the tracepoint tcp_sendmsg_locked", exchangeProgTenonAtTracepoint, func(kernel *btf.Spec) bool {
		return hasTracepoint(kernel, "tcp_sendmsg_locked")
	}},
	{HookFunction, "the function tcp_sendmsg_locked", exchangeProgTenonAtFunction, func(kernel *btf.Spec) bool {
		var f *btf.Func
		return kernel.TypeByName("tcp_sendmsg_locked", &f) == nil
	}},
}

// hasTracepoint reports whether a kernel has a tracepoint with types.
func hasTracepoint(kernel *btf.Spec, name string) bool {
	var t *btf.Typedef
	return kernel.TypeByName("btf_trace_"+name, &t) == nil
}
