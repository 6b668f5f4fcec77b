// Package run runs the experiment on CPU pinning on this machine.
package run

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"tenon.sh/tenon/internal/lab/pi"
	"tenon.sh/tenon/internal/lab/pinning"
	"tenon.sh/tenon/internal/lab/site"
)

// A Config configures the experiment. If a field is zero, it has the default
// that its comment names.
type Config struct {
	site.Setting
	Parts    []string       // default: pi and nginx
	Modes    []pinning.Mode // default: all
	Blocks   int            // default: 4
	Limit    int            // CPUs of the job and of each server (default: half of the tested CPUs, for nginx at most what fits)
	Threads  int            // of the job (default: 3000, as published)
	Digits   int            // default: 20000, as published
	Rounds   int            // default: the number for which the job needs the CPU time Work
	Work     time.Duration  // default: 3 s
	Duration time.Duration  // of each loop on the web servers (default: 3 s)
	MaxTime  time.Duration  // of the whole experiment (default: 5 min)

	StealPercent float64 // steal time that voids a run, in percent of the tested CPUs' time (default: 1)
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
	for _, m := range c.Modes {
		if !slices.Contains(pinning.Modes, m) {
			fault("--modes %q: want some of %s", m, modeNames())
		}
	}
	if !slices.Contains(c.Modes, pinning.Shared) {
		fault("--modes: want %s among them, with which the others are compared", pinning.Shared)
	}
	for name, n := range map[string]*int{"--blocks": &c.Blocks, "--threads": &c.Threads, "--digits": &c.Digits} {
		if *n < 0 {
			fault("%s %d: want 1 or more", name, *n)
		}
		if *n == 0 {
			*n = map[string]int{"--blocks": 4, "--threads": 3000, "--digits": 20000}[name]
		}
	}
	if c.Limit < 0 || c.Rounds < 0 {
		fault("--limit %d, --rounds %d: want 1 or more", c.Limit, c.Rounds)
	}
	for name, d := range map[string]*time.Duration{"--work": &c.Work, "--duration": &c.Duration, "--max-time": &c.MaxTime} {
		if *d == 0 {
			*d = map[string]time.Duration{"--work": 3 * time.Second, "--duration": 3 * time.Second, "--max-time": 5 * time.Minute}[name]
		}
		if *d < 0 {
			fault("%s %v: want 0 or more", name, *d)
		}
	}
	if c.Duration < time.Second {
		fault("--duration %v: want 1s or more", c.Duration)
	}
	if err := (pi.Task{Threads: c.Threads, Digits: c.Digits, Rounds: max(c.Rounds, 1)}).Check(); err != nil {
		fault("--threads, --digits, --rounds: %w", err)
	}
	if c.StealPercent == 0 {
		c.StealPercent = 1
	}
	c.NoClient = true // the parts divide the CPUs themselves
	c.Setting = c.Setting.OrDefaults(fault)
	return c, errors.Join(faults...)
}

func modeNames() string {
	names := make([]string, len(pinning.Modes))
	for i, m := range pinning.Modes {
		names[i] = string(m)
	}
	return strings.Join(names, ", ")
}
