package schedtrace

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"tenon.sh/tenon/internal/model/unit"
)

// Root returns the mount point of tracefs, which may be below debugfs
// (Documentation/trace/ftrace.rst, "The File System"). It returns
// ErrUnsupported if tracefs is not mounted.
func Root() (string, error) {
	for _, root := range []string{"/sys/kernel/tracing", "/sys/kernel/debug/tracing"} {
		if _, err := os.Stat(filepath.Join(root, "instances")); err == nil {
			return root, nil
		}
	}
	return "", fmt.Errorf("find tracefs: it is not mounted at /sys/kernel/tracing: %w", ErrUnsupported)
}

// A Recorder records the scheduler's events of all CPUs. It has a trace
// instance of its own, so that other traces on the machine continue.
type Recorder struct {
	dir    string
	reader pageReader
}

// kinds maps the names of the recorded events to their kinds.
var kinds = map[string]Kind{"sched_switch": Switch, "sched_wakeup": Wake, "sched_wakeup_new": Wake}

// Open makes an instance below root. Its buffer has perCPU bytes for each CPU;
// one sched_switch needs about 100 bytes. Open does not start to record. If a
// privilege is missing, the error wraps fs.ErrPermission.
func Open(root string, perCPU unit.Bytes) (*Recorder, error) {
	r := &Recorder{
		dir:    filepath.Join(root, "instances", "tenon-"+strconv.Itoa(os.Getpid())),
		reader: pageReader{decode: map[int]decode{}, names: map[string]string{}},
	}
	if err := os.Mkdir(r.dir, 0o700); err != nil {
		return nil, fmt.Errorf("make a trace instance: %w", err)
	}
	if err := r.prepare(perCPU); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

func (r *Recorder) prepare(perCPU unit.Bytes) error {
	if err := r.readLayouts(); err != nil {
		return err
	}
	for _, setting := range [][2]string{
		{"tracing_on", "0"},
		{"trace_clock", "mono"},
		{"options/overwrite", "0"},
		{"buffer_size_kb", strconv.FormatInt(max(1, int64(perCPU)/1024), 10)},
	} {
		if err := r.write(setting[0], setting[1]); err != nil {
			return err
		}
	}
	for name := range kinds {
		if err := r.write("events/sched/"+name+"/enable", "1"); err != nil {
			return err
		}
	}
	return nil
}

func (r *Recorder) readLayouts() error {
	var err error
	// Only the top instance has header_page.
	if r.reader.page, err = readLayout(filepath.Join(r.dir, "../../events/header_page")); err != nil {
		return err
	}
	if data := r.reader.page.fields["data"]; data.size <= 0 {
		return fmt.Errorf("trace format: header_page has no data: %w", ErrUnsupported)
	}
	for name, kind := range kinds {
		l, err := readLayout(filepath.Join(r.dir, "events/sched", name, "format"))
		if err != nil {
			return err
		}
		switch kind {
		case Switch:
			err = l.need([]string{"prev_pid", "next_pid"}, []string{"prev_comm", "next_comm"})
		case Wake:
			err = l.need([]string{"pid", "target_cpu"}, []string{"comm"})
		}
		if err != nil {
			return err
		}
		r.reader.decode[int(l.id)] = decode{layout: l, kind: kind}
	}
	return nil
}

func readLayout(name string) (layout, error) {
	text, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w: %w", ErrUnsupported, err)
	}
	if err != nil {
		return layout{}, fmt.Errorf("read a trace format: %w", err)
	}
	return parseLayout(string(text))
}

func (r *Recorder) write(name, value string) error {
	if err := os.WriteFile(filepath.Join(r.dir, name), []byte(value), 0); err != nil {
		return fmt.Errorf("write %s %q of the trace: %w", name, value, err)
	}
	return nil
}

// Start discards earlier events and starts the recording.
func (r *Recorder) Start() error {
	if err := r.write("trace", "\n"); err != nil {
		return err
	}
	return r.write("tracing_on", "1")
}

// Stop ends the recording and returns its events. The events of each CPU are in
// order. ErrVoid means that some events are lost, so that the others must not
// be judged.
func (r *Recorder) Stop() ([]Event, error) {
	if err := r.write("tracing_on", "0"); err != nil {
		return nil, err
	}
	cpus, err := filepath.Glob(filepath.Join(r.dir, "per_cpu/cpu*"))
	if err != nil {
		return nil, err
	}
	slices.Sort(cpus)
	var events []Event
	for _, dir := range cpus {
		id, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(dir), "cpu"))
		if err != nil {
			return nil, fmt.Errorf("read the trace of %s: %w", filepath.Base(dir), err)
		}
		if events, err = r.readCPU(events, unit.CPU(id), dir); err != nil {
			return nil, err
		}
	}
	return events, nil
}

func (r *Recorder) readCPU(events []Event, cpu unit.CPU, dir string) ([]Event, error) {
	stats, err := os.ReadFile(filepath.Join(dir, "stats"))
	if err != nil {
		return events, fmt.Errorf("read the trace of CPU %d: %w", cpu, err)
	}
	if err := complete(string(stats)); err != nil {
		return events, fmt.Errorf("read the trace of CPU %d: %w", cpu, err)
	}
	// An os.File would use Go's poller, and at the end of the pipe it would
	// wait instead of returning.
	fd, err := syscall.Open(filepath.Join(dir, "trace_pipe_raw"), syscall.O_RDONLY|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	if err != nil {
		return events, fmt.Errorf("open trace_pipe_raw of CPU %d: %w", cpu, err)
	}
	defer func() { _ = syscall.Close(fd) }()
	data := r.reader.page.fields["data"]
	page := make([]byte, data.offset+data.size)
	for {
		n, err := syscall.Read(fd, page)
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case errors.Is(err, syscall.EAGAIN), n == 0 && err == nil:
			return events, nil
		case err != nil:
			return events, fmt.Errorf("read trace_pipe_raw of CPU %d: %w", cpu, err)
		}
		if events, err = r.reader.read(events, cpu, page[:n]); err != nil {
			return events, err
		}
	}
}

// complete returns an error if events are lost, according to the file stats of a CPU.
func complete(stats string) error {
	for line := range strings.Lines(stats) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		switch name {
		case "overrun", "commit overrun", "dropped events":
			if value = strings.TrimSpace(value); value != "0" {
				return fmt.Errorf("%s %s: the buffer was too small: %w", name, value, ErrVoid)
			}
		}
	}
	return nil
}

// Close removes the instance and its events.
func (r *Recorder) Close() error {
	if err := os.Remove(r.dir); err != nil {
		return fmt.Errorf("remove the trace instance: %w", err)
	}
	return nil
}
