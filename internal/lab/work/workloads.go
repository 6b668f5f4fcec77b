package work

import (
	"cmp"
	"os/exec"
	"regexp"
	"slices"
	"strings"

	"tenon.sh/tenon/internal/config/spelling"
	"tenon.sh/tenon/internal/lab/load/protocol"
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
	return w.Service != kinds[0].Name || w.Load != "" || !slices.Equal(w.Batch, []string{"ffmpeg"})
}

// Self reports whether the service generates its own load, without a client.
func (w Workloads) Self() bool { return w.Service == selfKind.Name }

// ByCommand reports whether the load on the service comes from a command of the
// user.
func (w Workloads) ByCommand() bool { return w.Load != "" && protocol.Check(w.Load) != nil }

// Connections returns the number of connections with which an experiment loads the
// service.
func (w Workloads) Connections() int {
	return protocol.Connections(cmp.Or(w.Load, kindOf(w.Service).Scheme+"://"))
}

// OrDefaults sets the defaults, and calls fault for each fault.
func (w Workloads) OrDefaults(fault func(format string, args ...any)) Workloads {
	if w.Service == "" {
		w.Service = kinds[0].Name
	}
	if len(w.Batch) == 0 {
		w.Batch = []string{"ffmpeg"}
	}
	named := slices.Contains(Services, w.Service)
	unknown := checkCommand("--service", w.Service, Services, fault)
	switch err := protocol.Check(w.Load); {
	case unknown:
	case w.Load == "" && !named:
		fault("--service %q is a command, not one of %s, so it needs --load: where the service listens, such as redis://127.0.0.1:6379, or a command that prints latencies", w.Service, strings.Join(Services, ", "))
	case w.Load != "" && err != nil && (strings.Contains(w.Load, "://") && !strings.ContainsAny(w.Load, " \t") || hostAndPort.MatchString(w.Load)):
		fault("--load: %w", err)
	case w.Load != "" && err == nil && named && !w.Self() && !strings.HasPrefix(w.Load, kindOf(w.Service).Scheme+"://"):
		fault("--load %s: the service %s answers %s://", w.Load, w.Service, kindOf(w.Service).Scheme)
	case w.ByCommand() && !named && w.Ready == "":
		fault("--load %q is a command, so it does not show when the service is ready: add --ready with a command that ends with status 0 then", w.Load)
	}
	switch {
	case w.Self() && w.Load != "":
		fault("--load %q: the service %s drives itself; want a percentage", w.Load, selfKind.Name)
	case !w.Self() && (w.SelfThreads != 0 || w.SelfMemory != 0):
		fault("--self-threads and --self-memory are for --service %s", selfKind.Name)
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
		checkCommand("--batch", b, BatchWorks, fault)
	}
	w.checkRegexp(fault)
	return w
}

func (w Workloads) checkRegexp(fault func(format string, args ...any)) {
	if w.WorkRegexp == "" {
		return
	}
	line, err := regexp.Compile(w.WorkRegexp)
	switch {
	case !slices.ContainsFunc(w.Batch, func(b string) bool { return !slices.Contains(BatchWorks, b) }):
		fault("--work-regexp is for a --batch command of your own")
	case err != nil:
		fault("--work-regexp: %w", err)
	case line.NumSubexp() > 1:
		fault("--work-regexp %q: want at most one group, the amount so far", w.WorkRegexp)
	case line.MatchString(""):
		fault("--work-regexp %q: it matches an empty line: want a part of the lines that say what has been done", w.WorkRegexp)
	}
}

// hostAndPort matches a URL without its protocol, which is no command either.
var hostAndPort = regexp.MustCompile(`^(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9.-]+):[0-9]+(/\S*)?$`)

// programName matches a command that can only be the name of a program.
var programName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.+-]*$`)

// checkCommand calls fault, and returns true, for a flag with a wrong value.
// The value must be one of the names, or a command that a shell could run.
func checkCommand(flag, value string, names []string, fault func(format string, args ...any)) bool {
	if slices.Contains(names, value) {
		return false
	}
	if strings.TrimSpace(value) == "" {
		fault("%s: want one of %s, or a command", flag, strings.Join(names, ", "))
		return true
	}
	if !programName.MatchString(value) {
		return false
	}
	if _, err := exec.LookPath(value); err == nil {
		return false
	}
	hint := ""
	if near := spelling.Nearest(value, names); near != "" {
		hint = ": did you mean " + near + "?"
	}
	fault("%s %q: no program of this name is on the PATH, and it is none of %s%s", flag, value, strings.Join(names, ", "), hint)
	return true
}
