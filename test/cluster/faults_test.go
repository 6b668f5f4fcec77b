package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// pickLength returns most if the test may take minutes (TENON_TEST_LONG=1), and
// otherwise usual.
func pickLength[T any](usual, most T) T {
	if os.Getenv("TENON_TEST_LONG") == "1" {
		return most
	}
	return usual
}

// writeRaw writes a file of a measurement to the folder TENON_TEST_RAW, if it is
// set.
func writeRaw(t *testing.T, name, text string) {
	t.Helper()
	dir := os.Getenv("TENON_TEST_RAW")
	if dir == "" {
		return
	}
	err := os.MkdirAll(dir, 0o755)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644)
	}
	if err != nil {
		t.Error(err)
	}
}

// rawLog writes a log to the folder TENON_TEST_RAW when the test ends, even if
// the test has failed.
func rawLog(t *testing.T, name, file string) {
	t.Helper()
	t.Cleanup(func() {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Error(err)
		}
		writeRaw(t, name, string(text))
	})
}

// A server is the program of the API server. It can be killed and restarted
// while etcd keeps running.
type server struct {
	t    *testing.T
	c    *Cluster
	d    *daemon
	argv []string
}

func newServer(t *testing.T, c *Cluster) *server {
	t.Helper()
	s := &server{t: t, c: c, d: &daemon{c, c.file("log", "kube-apiserver")}}
	s.argv = commandLine(t, s.d)
	return s
}

// commandLine returns the command line of a running program of the cluster.
func commandLine(t *testing.T, d *daemon) []string {
	t.Helper()
	pid, err := d.pid()
	if err != nil {
		t.Fatal(err)
	}
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/root/proc/%d/cmdline", d.cluster.Init, pid))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(string(line), "\x00"), "\x00")
}

func (s *server) kill() {
	s.t.Helper()
	if err := s.d.kill(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
	requireSoon(s.t, 10*time.Second, "the API server is gone", func() error {
		if _, err := s.c.Get(s.t.Context(), "/readyz"); err == nil {
			return errors.New("it answers")
		}
		return nil
	})
}

func (s *server) start() {
	s.t.Helper()
	if _, err := s.c.daemon(0, s.d.name, s.argv...); err != nil {
		s.t.Fatal(err)
	}
	requireSoon(s.t, time.Minute, "the API server is back", func() error {
		if err := s.d.checkRunning(); err != nil {
			return err
		}
		_, err := s.c.Get(s.t.Context(), "/readyz")
		return err
	})
}

// restartWithoutServer kills the kubelet and starts it again. It requests the
// kubelet's health without credentials, because the kubelet would have to check
// credentials with the API server.
func restartWithoutServer(t *testing.T, n *Node) {
	t.Helper()
	argv := commandLine(t, n.daemon("kubelet"))
	if err := n.StopKubelet(t.Context()); err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DialContext: n.cluster.Dial, DisableKeepAlives: true}}
	requireSoon(t, 10*time.Second, "the killed kubelet is silent", func() error {
		if _, err := get(t.Context(), client, "http://"+n.IP+":10248/healthz"); err == nil {
			return errors.New("it answers")
		}
		return nil
	})
	if err := n.start(t.Context(), func() error {
		_, err := get(t.Context(), client, "http://"+n.IP+":10248/healthz")
		return err
	}, argv...); err != nil {
		t.Fatal(err)
	}
}

// A replica is a tenon-manager without webhooks. It is restarted whenever it
// ends, as in a Deployment, but without a growing delay.
type replica struct {
	t    *testing.T
	log  string
	stop func()     // ends it for good
	mu   sync.Mutex // guards the fields below
	pid  int
	ends []time.Time
}

// managers runs two replicas until the test ends, with these additional arguments.
func managers(t *testing.T, c *Cluster, args ...string) []*replica {
	t.Helper()
	bin := filepath.Join(programs(t), "tenon-manager")
	var all []*replica
	for i := range 2 {
		r := &replica{t: t, log: filepath.Join(t.TempDir(), fmt.Sprintf("manager-%d.log", i))}
		all = append(all, r)
		ctx, cancel := context.WithCancel(t.Context())
		var done sync.WaitGroup
		done.Go(func() { r.supervise(ctx, c, bin, args) })
		r.stop = func() {
			cancel()
			done.Wait()
		}
		t.Cleanup(func() {
			r.stop()
			if t.Failed() {
				text, _ := os.ReadFile(r.log)
				t.Logf("manager %d said:\n%s", i, text[max(0, len(text)-6000):])
			}
		})
	}
	return all
}

func (r *replica) supervise(ctx context.Context, c *Cluster, bin string, args []string) {
	out, err := os.Create(r.log)
	if err != nil {
		r.t.Error(err)
		return
	}
	defer out.Close()
	for ctx.Err() == nil {
		cmd := c.Command(ctx, bin, append([]string{
			"--namespace", "tenon-system", "--config-map", "koordinator-system/slo-controller-config", "--kubeconfig", c.Kubeconfig("admin"), "--metrics", "", "--health", "", "--webhook-port", "0",
		}, args...)...)
		cmd.Stdout, cmd.Stderr = out, out
		if err := cmd.Start(); err != nil {
			r.t.Error(err)
			return
		}
		pid, _ := PID(cmd)
		r.mu.Lock()
		r.pid = pid
		r.mu.Unlock()
		_ = cmd.Wait()
		r.mu.Lock()
		r.ends = append(r.ends, time.Now())
		r.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-time.After(2 * time.Second):
		}
	}
}

// ended returns how many times the replica has ended.
func (r *replica) ended() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.ends)
}

func (r *replica) said() string {
	text, _ := os.ReadFile(r.log)
	return string(text)
}

// A cgroupWrite is a write to a file in a control group of a node.
type cgroupWrite struct {
	at   time.Time
	pid  int
	by   string // name of the writing program; empty: it had already ended
	file string
}

// A witness gets an event from the kernel for each write of any process to the
// control groups of a node. The kernel reports equal writes that follow each
// other directly as one event.
type witness struct {
	mu  sync.Mutex
	all []cgroupWrite
}

// witnessWrites watches the writes until the test ends (fanotify(7)).
func witnessWrites(t *testing.T, n *Node) *witness {
	t.Helper()
	fd, err := unix.FanotifyInit(unix.FAN_CLASS_NOTIF|unix.FAN_CLOEXEC|unix.FAN_NONBLOCK|unix.FAN_UNLIMITED_QUEUE, unix.O_RDONLY|unix.O_CLOEXEC)
	if err != nil {
		t.Fatalf("fanotify_init: %v", err)
	}
	f := os.NewFile(uintptr(fd), "fanotify")
	mounts, err := hierarchies()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mounts {
		if err := unix.FanotifyMark(fd, unix.FAN_MARK_ADD|unix.FAN_MARK_FILESYSTEM, unix.FAN_MODIFY, unix.AT_FDCWD, m); err != nil {
			t.Fatalf("fanotify_mark %s: %v", m, err)
		}
	}
	w := &witness{}
	var done sync.WaitGroup
	done.Go(func() { w.read(f, n.CgroupRoot+"/") })
	t.Cleanup(func() { f.Close(); done.Wait() })
	return w
}

func (w *witness) read(f io.Reader, below string) {
	const size = int(unsafe.Sizeof(unix.FanotifyEventMetadata{}))
	for buffer := make([]byte, 64<<10); ; {
		n, err := f.Read(buffer)
		if errors.Is(err, os.ErrClosed) {
			return
		}
		if err != nil {
			continue // the cgroup is gone
		}
		for rest := buffer[:n]; len(rest) >= size; {
			e := (*unix.FanotifyEventMetadata)(unsafe.Pointer(&rest[0]))
			if e.Fd >= 0 {
				file, _ := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", e.Fd))
				_ = unix.Close(int(e.Fd))
				if _, inner, is := strings.Cut(file, below); is {
					name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", e.Pid))
					w.mu.Lock()
					w.all = append(w.all, cgroupWrite{time.Now(), int(e.Pid), strings.TrimSpace(string(name)), inner})
					w.mu.Unlock()
				}
			}
			rest = rest[e.Event_len:]
		}
	}
}

// writesSince returns the writes that came after the given time.
func (w *witness) writesSince(at time.Time) []cgroupWrite {
	w.mu.Lock()
	defer w.mu.Unlock()
	i := slices.IndexFunc(w.all, func(c cgroupWrite) bool { return c.at.After(at) })
	if i < 0 {
		return nil
	}
	return slices.Clone(w.all[i:])
}

// bound reports whether a file is a CPU quota of best-effort work that follows
// the CPU usage of the node. On cgroup v1 this includes the quota of a pod,
// which must not exceed the quota of the class.
func bound(file string) bool {
	return strings.Contains(file, "kubepods/besteffort/") && filepath.Base(file) == "cpu.cfs_quota_us"
}

// dropExpected returns all writes except those of the kubelet and those to the
// quotas of bound.
func dropExpected(all []cgroupWrite) []cgroupWrite {
	return slices.DeleteFunc(slices.Clone(all), func(c cgroupWrite) bool { return c.by == "kubelet" || bound(c.file) })
}

// memoryOf returns the fields VmRSS and RssAnon of a process, in KiB
// (proc_pid_status(5)).
func memoryOf(pid int) (rss, anon int) {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		switch f[0] {
		case "VmRSS:":
			rss, _ = strconv.Atoi(f[1])
		case "RssAnon:":
			anon, _ = strconv.Atoi(f[1])
		}
	}
	return rss, anon
}

// containers returns the IDs of a pod's containers, each with the number of its
// restarts.
func containers(t *testing.T, c *Cluster, pod string) string {
	t.Helper()
	return kubectl(t, c, "get", "pod", pod, "-o", "jsonpath={range .status.containerStatuses[*]}{.containerID} {.restartCount} {.state.running.startedAt}{\"\\n\"}{end}")
}
