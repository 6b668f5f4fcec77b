package loop

// The messages of tenond's log that programs read. A message names its event, and
// the values stand beside it. Package lab/testbed follows an agent by them.
const (
	LogReady     = "ready"                // the agent has made its first tick
	LogMechanism = "isolation on the CPU" // it has changed the isolation mechanism
	LogWritten   = "written"              // it has written a knob
)
