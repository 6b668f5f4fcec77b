package turns

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/lab/harness"
	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/lab/testbed"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// protocol is the version of what the lab and the process on a node say to each
// other. It changes with the meaning of a counter of a harness.Reading, too.
const protocol = 2

// Role is the argument of lab.Child that starts Serve. It has to be the last one.
const Role = "turns"

// An Order is the first line that the process on a node gets. Each further line is a
// question. It answers each line with a line of JSON and a line with a full stop.
type Order struct {
	Protocol int `json:"protocol"`
	// Service and Batch are the ids of the containers, without the name of the
	// runtime. If both are empty, the process only finds out whether it can work.
	Service string        `json:"service,omitempty"`
	Batch   string        `json:"batch,omitempty"`
	Tested  unit.CPUSet   `json:"tested_cpus"`
	Request unit.MilliCPU `json:"service_request_mcpu"`
	// Progress are files in the container of the batch work. The answers have their
	// ends.
	Progress []string `json:"progress,omitempty"`
	// Journal is the directory of the journal of the changes. The tenond of the node
	// must not share it: it would take the changes for its own.
	Journal string `json:"journal"`
	// Patience is the longest time without a question. After it, the process takes
	// the lab for lost, although the connection seems to stand.
	Patience time.Duration `json:"patience_ns"`
}

// A question asks the process on a node to enter a mode, to watch for a time what other
// programs do, or to close; without any of these, to read the counters. If Clock is set,
// only the time is asked.
type question struct {
	Clock bool          `json:"clock,omitempty"`
	Enter report.Mode   `json:"enter,omitempty"`
	Watch time.Duration `json:"watch_ns,omitempty"`
	Close bool          `json:"close,omitempty"`
}

// An answer has the time of the node when the question was done.
type answer struct {
	At       time.Time      `json:"at"`
	Reading  *Reading       `json:"reading,omitempty"`
	Progress []Progress     `json:"progress,omitempty"`
	Others   *report.Others `json:"others,omitempty"` // of Watch
	Writes   []string       `json:"writes,omitempty"` // of Close
	Faults   []string       `json:"faults,omitempty"` // of Close
	Error    string         `json:"error,omitempty"`
}

// A Progress is the end of a progress file.
type Progress struct {
	Written time.Time `json:"written"`
	End     string    `json:"end"`
}

// Serve is the process on a node. When its input ends or the lab is silent for too
// long, it puts everything back, as after a question to close.
func Serve(ctx context.Context, in io.Reader, out io.Writer) error {
	// The end of the lab ends it, and no signal. Writes to a lost lab fail.
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE)
	lines := make(chan string)
	go func() {
		defer close(lines)
		for scan := bufio.NewScanner(in); scan.Scan(); {
			lines <- scan.Text()
		}
	}()
	first, is := <-lines
	if !is {
		return errors.New("the lab ended before it said what to do")
	}
	var o Order
	err := json.Unmarshal([]byte(first), &o)
	if err == nil && o.Protocol != protocol {
		err = fmt.Errorf("the lab speaks version %d of the protocol, the tenon of this node version %d: use a tenon of the node's version", o.Protocol, protocol)
	}
	var s *server
	if err == nil {
		s, err = serverOf(ctx, o)
	}
	if said := say(out, answer{At: time.Now(), Error: textOf(err)}); err == nil {
		err = said
	}
	if err != nil {
		return errors.Join(err, s.close())
	}
	return s.follow(ctx, lines, out)
}

// say writes an answer.
func say(out io.Writer, a answer) error {
	text, err := json.Marshal(a)
	if err == nil {
		_, err = fmt.Fprintf(out, "%s\n.\n", text)
	}
	if err != nil {
		return fmt.Errorf("answer the lab: %w", err)
	}
	return nil
}

// textOf returns an error as one line.
func textOf(err error) string {
	if err == nil {
		return ""
	}
	return strings.ReplaceAll(err.Error(), "\n", "; ")
}

// A server is the switcher of a node, in the pod of its tenond.
type server struct {
	order Order
	site  *testbed.Site
	local *Local          // nil: it only finds out whether it can work
	batch node.CgroupPath // of the container of the batch work
}

// serverOf finds the cgroups of the containers.
func serverOf(ctx context.Context, o Order) (s *server, err error) {
	s = &server{order: o}
	self, err := os.Executable()
	if err != nil {
		return s, fmt.Errorf("find this program: %w", err)
	}
	// The arguments before that of this role also start the other roles.
	if s.site, err = testbed.Beside(ctx, o.Journal, append([]string{self}, os.Args[1:len(os.Args)-1]...)); err != nil {
		return s, err
	}
	s.site.Place.Tested = o.Tested
	if err := mayWrite(s.site.Tree); err != nil || o.Service == "" && o.Batch == "" {
		return s, err
	}
	found, err := s.site.Tree.Paths()
	if err != nil {
		return s, fmt.Errorf("find the cgroups of the containers: %w", err)
	}
	service, err := containerAt(found, o.Service)
	if err != nil {
		return s, err
	}
	if s.batch, err = containerAt(found, o.Batch); err != nil {
		return s, err
	}
	class := s.batch.Parent().Parent()
	if !strings.Contains(path.Base(string(class)), "besteffort") {
		return s, fmt.Errorf("the batch work is in cgroup %s: want the pod in the cgroup of the class BestEffort", s.batch)
	}
	g := Groups{
		Workloads: []node.Workload{serviceAt(service.Parent()), {
			ID: "batch", Class: node.BE, Pod: true, Cgroup: s.batch.Parent(), ContentionRoot: class, IdleCgroup: s.batch.Parent(),
		}},
		Weighted: []node.CgroupPath{class, s.batch.Parent(), s.batch},
		Frozen:   s.batch, Tested: o.Tested, Request: o.Request,
	}
	counters := &harness.Sampler{
		Tree: s.site.Tree, FS: s.site.FS, Tested: o.Tested, Service: service.Parent(), Batch: s.batch.Parent(), Root: class,
		LSProcesses: func() ([]int, error) { return s.site.Tree.ProcsBelow(string(service)) },
	}
	s.local, err = NewLocal(s.site, counters, g)
	return s, err
}

// serviceAt describes the pod of the service as Tenon describes it: it meets the other
// classes at the cgroup of its class, or at its own if it is Guaranteed.
func serviceAt(pod node.CgroupPath) node.Workload {
	w := node.Workload{ID: "service", Class: node.LS, Pod: true, Cgroup: pod, ContentionRoot: pod}
	if class := pod.Parent(); strings.Contains(path.Base(string(class)), "burstable") {
		w.ContentionRoot = class
	}
	return w
}

// mayWrite returns an error if this process may not write cgroups.
func mayWrite(tree *cgroup.Tree) error {
	dir, err := tree.Dir("cpu", "")
	if err == nil {
		err = unix.Access(dir, unix.W_OK)
	}
	if err != nil {
		return fmt.Errorf("the pod of tenond may not write the cgroups of its node: %w", err)
	}
	return nil
}

// containerAt returns the cgroup of a container, which is in that of a pod.
func containerAt(paths []string, id string) (node.CgroupPath, error) {
	i := slices.IndexFunc(paths, func(p string) bool { return id != "" && strings.Contains(path.Base(p), id) })
	if i < 0 {
		return "", fmt.Errorf("the node has no cgroup of container %.80q", id)
	}
	at := node.CgroupPath(paths[i])
	// The names of pods have "pod", also beside that of the kubelet's class.
	if pod := strings.ReplaceAll(path.Base(string(at.Parent())), "kubepods", ""); !strings.Contains(pod, "pod") {
		return "", fmt.Errorf("container %.80q is in cgroup %s: want it in the cgroup of a pod", id, at)
	}
	return at, nil
}

// follow answers questions until it has been asked to close, or the lab is lost.
func (s *server) follow(ctx context.Context, lines <-chan string, out io.Writer) error {
	for {
		var q question
		select {
		case line, is := <-lines:
			if !is {
				return s.close()
			}
			if err := json.Unmarshal([]byte(line), &q); err != nil {
				return errors.Join(fmt.Errorf("read a question of the lab: %w", err), s.close())
			}
		case <-time.After(s.order.Patience):
			return errors.Join(fmt.Errorf("the lab has asked nothing for %v", s.order.Patience), s.close())
		}
		a := s.answer(ctx, q)
		if err := say(out, a); err != nil {
			return errors.Join(err, s.close())
		}
		if q.Close {
			return nil
		}
	}
}

// answer does what a question asks.
func (s *server) answer(ctx context.Context, q question) (a answer) {
	var err error
	switch {
	case q.Clock:
	case q.Close:
		local := s.local
		if err = s.close(); local != nil {
			a.Writes, a.Faults = local.Report()
		}
	case q.Watch > 0:
		var o report.Others
		if o, err = s.site.Others(ctx, q.Watch); err == nil {
			a.Others = &o
		}
	case s.local == nil:
		err = errors.New("no containers are given")
	case q.Enter == "":
		var r Reading
		if r, err = s.local.Reading(); err == nil {
			a.Reading = &r
			a.Progress, err = s.progress()
		}
	case !q.Enter.Spec().Batch:
		err = fmt.Errorf("this node does not know mode %.80q", q.Enter)
	default:
		err = s.local.Enter(ctx, q.Enter)
	}
	a.At, a.Error = time.Now(), textOf(err)
	if a.Reading != nil {
		a.At = a.Reading.At
	}
	return a
}

// close puts everything back. It may be called more than once.
func (s *server) close() error {
	if s == nil || s.site == nil {
		return nil
	}
	var err error
	if s.local != nil {
		err = s.local.Close()
		s.local = nil
	}
	return errors.Join(err, s.site.Close())
}

// progressEnd is how much of a progress file is read: several reports of ffmpeg.
const progressEnd = 2 << 10

// progress reads the ends of the progress files. They are read from outside the
// container, which may be frozen.
func (s *server) progress() ([]Progress, error) {
	if len(s.order.Progress) == 0 {
		return nil, nil
	}
	pids, err := s.site.Tree.ProcsBelow(string(s.batch))
	if err != nil {
		return nil, fmt.Errorf("read the progress of the batch work: %w", err)
	}
	err = errors.New("its container has no process")
	for _, pid := range pids {
		root := filepath.Join(s.site.FS.Proc, strconv.Itoa(pid), "root")
		var all []Progress
		for _, file := range s.order.Progress {
			var p Progress
			if p, err = endOf(filepath.Join(root, file)); err != nil {
				break // the process may have ended
			}
			all = append(all, p)
		}
		if err == nil {
			return all, nil
		}
	}
	return nil, fmt.Errorf("read the progress of the batch work: %w", err)
}

// endOf reads the end of a file, which must not be a link: a container may have made
// it.
func endOf(file string) (p Progress, err error) {
	f, err := os.OpenFile(file, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return p, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return p, err
	}
	if !info.Mode().IsRegular() {
		return p, fmt.Errorf("%s is no regular file", file)
	}
	from := max(info.Size()-progressEnd, 0)
	text, err := io.ReadAll(io.NewSectionReader(f, from, progressEnd))
	if from > 0 { // the first line is cut
		_, rest, _ := strings.Cut(string(text), "\n")
		text = []byte(rest)
	}
	whole := strings.LastIndexByte(string(text), '\n') + 1 // the last line may not be complete
	return Progress{Written: info.ModTime(), End: string(text[:whole])}, err
}
