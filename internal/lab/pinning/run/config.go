// Package run runs the experiment on CPU pinning: on this machine, or with the
// published manifests as pods of a Kubernetes cluster. There the modes differ in
// annotations, labels and limits.
package run

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"tenon.sh/tenon/internal/lab/pi"
	"tenon.sh/tenon/internal/lab/pinning"
	"tenon.sh/tenon/internal/lab/testbed"
)

// A Config configures the experiment. If a field is zero, it has the default
// that its comment names. There are 4 blocks in 5 minutes, of pods in an hour.
type Config struct {
	testbed.Setting
	Parts    []string       // default: pi and nginx
	Modes    []pinning.Mode // default: all
	Limit    int            // CPUs of the job and of each server (default: half of the tested CPUs, for nginx at most what fits; of pods 4, as published, or fewer where 4 do not fit)
	Threads  int            // of the job (default: 3000, as published)
	Digits   int            // default: 20000, as published
	Rounds   int            // default: the number for which the job needs the CPU time Work
	Work     time.Duration  // default: 3 s
	Duration time.Duration  // of each loop on the web servers (default: 3 s; of pods 10 s)
	Pods     *Pods          // where the pods run; nil: this machine
}

// OrDefaults returns the configuration with its defaults, and all faults at once.
func (c Config) OrDefaults() (Config, error) {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if len(c.Parts) == 0 {
		c.Parts = []string{pinning.Pi, pinning.NGINX}
	}
	for _, p := range c.Parts {
		if p != pinning.Pi && p != pinning.NGINX {
			fault("--parts %q: want %s, %s or both", p, pinning.Pi, pinning.NGINX)
		}
	}
	if len(c.Modes) == 0 {
		c.Modes = pinning.Modes
	}
	unknown := slices.IndexFunc(c.Modes, func(m pinning.Mode) bool { return !slices.Contains(pinning.Modes, m) })
	if unknown >= 0 {
		fault("--modes %q: want some of %s", c.Modes[unknown], modeNames())
	} else if !slices.Contains(c.Modes, pinning.Shared) {
		fault("--modes: want %s among them, with which the others are compared", pinning.Shared)
	}
	c.Blocks, c.Threads, c.Digits = cmp.Or(c.Blocks, 4), cmp.Or(c.Threads, 3000), cmp.Or(c.Digits, 20000)
	loop, whole := 3*time.Second, 5*time.Minute
	if c.Pods != nil {
		loop, whole = 10*time.Second, time.Hour
		given := c
		pods := c.Pods.orDefaults(given, fault)
		c.Pods, c.Rounds = &pods, 0
	}
	c.Work, c.Duration, c.MaxTime = cmp.Or(c.Work, 3*time.Second), cmp.Or(c.Duration, loop), cmp.Or(c.MaxTime, whole)
	for _, n := range []struct {
		flag  string
		value int // 0: the default
		bound int // 0: none
	}{{"--limit", c.Limit, 0}, {"--threads", c.Threads, pi.MaxThreads}, {"--digits", c.Digits, pi.MaxDigits}, {"--rounds", c.Rounds, 0}} {
		switch {
		case n.bound == 0 && n.value < 0:
			fault("%s %d: want 1 or more", n.flag, n.value)
		case n.bound > 0 && (n.value < 0 || n.value > n.bound):
			fault("%s %d: want 1 to %d", n.flag, n.value, n.bound)
		}
	}
	if c.Duration < time.Second {
		fault("--duration %v: want 1s or more", c.Duration)
	}
	if c.Work < 0 {
		fault("--work %v: want more than 0", c.Work)
	}
	c.NoClient = true // the parts divide the CPUs themselves
	c.Setting = c.Setting.OrDefaults(fault)
	return c, testbed.RefuseFlags(faults...)
}

func modeNames() string {
	names := make([]string, len(pinning.Modes))
	for i, m := range pinning.Modes {
		names[i] = string(m)
	}
	return strings.Join(names, ", ")
}
