// Package schedtrace records and judges the decisions of the kernel's
// scheduler. It records them with the kernel's trace events. From the record it
// finds out which classes ran on the same core at the same time, and how long
// threads waited. It shares no code with the programs of bpf/, so that it can
// verify them independently.
package schedtrace

import "errors"

// ErrUnsupported means that this machine has no readable trace events: tracefs
// is not mounted, or the kernel has no scheduler events (CONFIG_EVENT_TRACING,
// CONFIG_CONTEXT_SWITCH_TRACER).
var ErrUnsupported = errors.New("not supported here")

// ErrVoid means that a record cannot be judged, because events are lost or the
// record is empty.
var ErrVoid = errors.New("the trace is void")
