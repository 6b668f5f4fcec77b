// Package schedtrace records what the kernel's scheduler does, by the kernel's own
// trace events, and judges the record: which class ran where beside which,
// and how long it waited. It shares nothing with the programs of bpf/, so that
// it can be the witness against them.
package schedtrace

import "errors"

// ErrUnsupported means that this machine has no trace events to read: no
// tracefs is mounted, or its kernel has no scheduler events
// (CONFIG_EVENT_TRACING, CONFIG_CONTEXT_SWITCH_TRACER).
var ErrUnsupported = errors.New("not supported here")

// ErrVoid means that a record cannot be judged: events are lost, or there are
// none.
var ErrVoid = errors.New("the trace is void")
