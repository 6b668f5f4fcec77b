package e2e

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// waysOfAMachine are ways of damage that affect more than cgroups. They run
// only on a machine that no other program uses (TENON_TEST_OWN_MACHINE).
var waysOfAMachine = []way{
	{"a CPU goes and comes back", func(c *chaos) {
		const last = "/sys/devices/system/cpu/cpu1/online"
		c.check(os.WriteFile(last, []byte("0"), 0))
		defer func() { c.check(os.WriteFile(last, []byte("1"), 0)) }()
		c.run("batch/on-fewer", "sleep", "600")
		c.awaitLimit("batch/on-fewer")
		eventually(c.t, "BE is bounded on the rest of the CPUs", func() bool {
			q := c.quota()
			return q.Quota > 0 && q.Quota <= q.Period
		})
	}},
	{"the clock steps", func(c *chaos) {
		for i, step := range []time.Duration{time.Hour, -2 * time.Hour, time.Hour} {
			c.step(step)
			group := "batch/at-" + string(rune('a'+i))
			c.run(group, "sleep", "600")
			c.awaitLimit(group)
		}
	}},
}

// step sets the clock of the machine forward or back. Monotonic clocks do not
// change.
func (c *chaos) step(d time.Duration) {
	c.t.Helper()
	var now unix.Timespec
	c.check(unix.ClockGettime(unix.CLOCK_REALTIME, &now))
	next := unix.NsecToTimespec(now.Nano() + d.Nanoseconds())
	c.check(unix.ClockSettime(unix.CLOCK_REALTIME, &next))
}

// ways returns the ways of damage that are allowed on this machine.
func ways() []way {
	if os.Getenv("TENON_TEST_OWN_MACHINE") != "1" {
		return chaosWays
	}
	return append(waysOfAMachine, chaosWays...)
}
