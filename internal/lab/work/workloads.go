package work

import (
	"regexp"
	"slices"
	"strings"

	"tenon.sh/tenon/internal/lab/wire"
	"tenon.sh/tenon/internal/model/unit"
)

// A Workloads names the service, its load and the batch work of a colocation
// experiment. The zero value means nginx and ffmpeg.
type Workloads struct {
	Service string   // a name of Services or a shell command (default: nginx)
	Load    string   // a URL or a shell command (default: the URL of the named service)
	Ready   string   // a shell command that ends with 0 when the service is ready (default: the service is ready when the URL answers)
	Batch   []string // names of BatchWorks or shell commands (default: ffmpeg)
	// WorkRegexp matches the lines of the output of batch commands that report
	// progress (Work.Line). If it is empty, their progress is their CPU time.
	WorkRegexp string
	// Keep means that one process of the service serves all runs. If it is
	// false, the lab starts a new process for each run.
	Keep bool
	// SelfThreads is the number of threads of the service self (default: one
	// for each tested CPU). SelfMemory is the memory of each of its threads
	// (default: 8 MiB).
	SelfThreads int
	SelfMemory  unit.Bytes
}

// AreCustom reports whether the user chose other workloads than nginx and ffmpeg.
func (w Workloads) AreCustom() bool {
	return w.Service != "nginx" || w.Load != "" || !slices.Equal(w.Batch, []string{"ffmpeg"})
}

// NGINX reports whether the service is the lab's nginx.
func (w Workloads) NGINX() bool { return w.Service == "nginx" }

// Self reports whether the service generates its own load, without a client.
func (w Workloads) Self() bool { return w.Service == selfName }

// ByCommand reports whether the load on the service comes from a command of the
// user.
func (w Workloads) ByCommand() bool { return w.Load != "" && wire.Check(w.Load) != nil }

// OrDefaults sets the defaults, and calls fault for each fault.
func (w Workloads) OrDefaults(fault func(format string, args ...any)) Workloads {
	if w.Service == "" {
		w.Service = "nginx"
	}
	if len(w.Batch) == 0 {
		w.Batch = []string{"ffmpeg"}
	}
	named := slices.Contains(Services, w.Service)
	if strings.TrimSpace(w.Service) == "" {
		fault("--service: want one of %s, or a command", strings.Join(Services, ", "))
	}
	switch err := wire.Check(w.Load); {
	case w.Load == "" && !named:
		fault("--service %q needs --load: where the service listens, such as redis://127.0.0.1:6379, or a command that prints latencies", w.Service)
	case w.Load != "" && err != nil && (strings.Contains(w.Load, "://") && !strings.ContainsAny(w.Load, " \t")):
		fault("--load: %w", err)
	case w.ByCommand() && !named && w.Ready == "":
		fault("--load %q is a command, so it does not show when the service is ready: add --ready with a command that ends with status 0 then", w.Load)
	}
	switch {
	case w.Self() && w.Load != "":
		fault("--load %q: the service %s drives itself; want a percentage", w.Load, selfName)
	case !w.Self() && (w.SelfThreads != 0 || w.SelfMemory != 0):
		fault("--self-threads and --self-memory are for --service %s", selfName)
	case w.SelfThreads < 0 || w.SelfThreads > 1024:
		fault("--self-threads %d: want 1 to 1024", w.SelfThreads)
	case w.SelfMemory != 0 && (w.SelfMemory < 4<<10 || w.SelfMemory > 1<<40):
		fault("--self-memory %v: want 4Ki to 1Ti for each thread", w.SelfMemory)
	}
	if w.SelfMemory == 0 {
		w.SelfMemory = 8 << 20
	}
	if w.Ready != "" && named {
		fault("--ready is for a --service of your own")
	}
	for _, b := range w.Batch {
		if strings.TrimSpace(b) == "" {
			fault("--batch: want one of %s, or a command", strings.Join(BatchWorks, ", "))
		}
	}
	if _, err := regexp.Compile(w.WorkRegexp); err != nil {
		fault("--work-regexp: %w", err)
	}
	if w.WorkRegexp != "" && !slices.ContainsFunc(w.Batch, func(b string) bool { return !slices.Contains(BatchWorks, b) }) {
		fault("--work-regexp is for a --batch command of your own")
	}
	return w
}
