package e2e

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// heldConnections is the number of connections that a client tries to hold.
	heldConnections = 6000
	// holderVar holds the address to which the child process connects, and what it
	// sends on each connection.
	holderVar, holderSends = "TENON_TEST_HOLDER", "TENON_TEST_HOLDER_SENDS"
)

// holdConnections is the child process: a client that holds as many connections
// as it gets, and does not read. It prints their number, and opens those that
// were closed again, until its input ends.
func holdConnections(address string) {
	limit := syscall.Rlimit{Cur: heldConnections + 100, Max: heldConnections + 100}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		fmt.Println(err)
		return
	}
	if err := syscall.Setgid(65534); err != nil {
		fmt.Println(err)
		return
	}
	if err := syscall.Setuid(65534); err != nil {
		fmt.Println(err)
		return
	}
	held := make([]net.Conn, 0, heldConnections)
	for n := 0; n < 2*heldConnections && len(held) < heldConnections; n++ {
		c, err := net.DialTimeout("tcp", address, time.Second)
		if err == nil {
			_, err = io.WriteString(c, os.Getenv(holderSends))
		}
		if err == nil {
			held = append(held, c)
		}
	}
	fmt.Println("holds", len(held))
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// memoryOf returns the resident memory of a process in bytes.
func memoryOf(t *testing.T, pid int) int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("/proc", itoa(pid), "statm"))
	if err != nil {
		t.Fatal(err)
	}
	pages, err := strconv.Atoi(strings.Fields(string(text))[1])
	if err != nil {
		t.Fatal(err)
	}
	return pages * os.Getpagesize()
}

// isHealthy returns nil if tenond answers that it is healthy.
func isHealthy(address string) error {
	code, text, err := ask(address, "/healthz")
	if err == nil && code != http.StatusOK {
		err = fmt.Errorf("status %d: %s", code, text)
	}
	return err
}

// ask asks tenond for a page, on a new connection.
func ask(address, page string) (code int, text string, err error) {
	client := http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Get("http://" + address + page)
	if err != nil {
		return 0, "", err
	}
	defer answer.Body.Close()
	all, err := io.ReadAll(answer.Body)
	return answer.StatusCode, string(all), err
}

// TestHeldConnectionsDoNotStopTheLoop lets another user hold thousands of
// connections to the metrics of a tenond that has 1,024 descriptors. New jobs must
// get their limits, the health must be good, and descriptors and memory must stay
// within bounds. With TENON_TEST_BIN of an older tenond, it fails.
func TestHeldConnectionsDoNotStopTheLoop(t *testing.T) {
	needPrograms(t, "prlimit")
	for name, sends := range map[string]string{
		"silent":       "",
		"slow readers": "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			s := plantSite(t, limitedJobs)
			address := freeAddress(t)
			s.args = []string{"--metrics", address}
			d := s.tenond("prlimit", "--nofile=1024:1024")
			s.awaitRoom()
			eventually(t, "tenond is healthy", func() bool { return isHealthy(address) == nil })
			memory := memoryOf(t, d.Process.Pid)

			self, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			holder := exec.Command(self)
			holder.Env = append(os.Environ(), holderVar+"="+address, holderSends+"="+sends)
			hold, err := holder.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			said, err := holder.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := holder.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				hold.Close()
				_ = holder.Wait()
			})
			var held int
			if _, err := fmt.Fscanf(said, "holds %d\n", &held); err != nil {
				t.Fatal(err)
			}

			begun := time.Now()
			var jobs []string
			for i := range 20 {
				jobs = append(jobs, fmt.Sprintf("batch/late-%d", i))
				s.run(jobs[i], "sleep", "600")
			}
			for _, group := range jobs {
				eventually(t, group+" has its limit", func() bool {
					m, err := s.tree.ReadMemory(string(s.path(group)))
					return err == nil && m.Max == 64<<20
				})
			}
			took := time.Since(begun)
			if err := isHealthy(address); err != nil {
				t.Error(err)
			}
			if values := scrape(t, address); values["tenon_workloads{class=\"BE\"}"] < 21 {
				t.Error("a scrape beside the held connections has no workloads")
			}
			open, grown := openFiles(t, d.Process.Pid, "socket:"), memoryOf(t, d.Process.Pid)-memory
			if open > 130 || grown > 24<<20 {
				t.Errorf("tenond has %d sockets open, and grew by %d bytes", open, grown)
			}
			t.Logf("%d connections tried, %d sockets of tenond open, 20 jobs bounded after %v, memory %+.1f MiB from %.1f MiB",
				held, open, took.Round(time.Millisecond), float64(grown)/(1<<20), float64(memory)/(1<<20))
			if strings.Contains(d.said(), "too many open files") {
				t.Errorf("tenond has no descriptors left:\n%s", d.said())
			}
			d.stop()
			s.restore()
		})
	}
}

// TestHealthSaysWhatTheLoopCannotDo starts tenond with soft limits of 24 descriptors
// and of 4096 bytes for a file, which it must raise. Later it lowers the second
// limit, makes the cgroups of BE read-only, and opens the state directory to all users. Each
// time /healthz, tenon status and tenon doctor must name the reason, while /livez
// stays good. When the reason ends, the trouble must end.
func TestHealthSaysWhatTheLoopCannotDo(t *testing.T) {
	inTurn(t)
	needPrograms(t, "prlimit", "unshare", "nsenter", "mount")
	s := plantSite(t, limitedJobs)
	address := freeAddress(t)
	s.args = []string{"--metrics", address}
	d := s.tenond("prlimit", "--nofile=24:", "--fsize=4096:", "unshare", "--mount", "--propagation", "private")
	eventually(t, "tenond is healthy", func() bool { return isHealthy(address) == nil })
	says := func(want string, healthy bool) {
		t.Helper()
		eventually(t, "/healthz names "+want, func() bool {
			code, text, err := ask(address, "/healthz")
			return err == nil && (code == http.StatusOK) == healthy && strings.Contains(text, want)
		})
		if code, text, err := ask(address, "/livez"); err != nil || code != http.StatusOK {
			t.Errorf("/livez: %d %s, %v", code, text, err)
		}
		for _, command := range []string{"status", "doctor"} {
			text, err := exec.Command(filepath.Join(s.bin, "tenon"), "--state-dir", s.state, command).CombinedOutput()
			if err != nil || !strings.Contains(string(text), "TROUBLE") || !strings.Contains(strings.Join(strings.Fields(string(text)), " "), want) { // doctor breaks lines
				t.Errorf("tenon %s does not name %q: %v\n%s", command, want, err, text)
			}
		}
	}
	ends := func() {
		t.Helper()
		eventually(t, "the trouble ends", func() bool {
			_, text, err := ask(address, "/healthz")
			return err == nil && text == "ok\n"
		})
	}
	limit := func(bytes uint64) {
		t.Helper()
		if err := unix.Prlimit(d.Process.Pid, unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: bytes, Max: unix.RLIM_INFINITY}, nil); err != nil {
			t.Fatal(err)
		}
	}

	files, err := filepath.Glob(filepath.Join(s.state, "journal-*.jsonl"))
	if err != nil || len(files) != 1 {
		t.Fatalf("%v, %v", files, err)
	}
	journal, err := os.Stat(files[0])
	if err != nil {
		t.Fatal(err)
	}
	limit(uint64(journal.Size()))
	s.run("batch/late", "sleep", "600")
	says("file too large", false)
	limit(unix.RLIM_INFINITY)
	ends()

	if err := os.Chmod(s.state, 0o777); err != nil {
		t.Fatal(err)
	}
	says("every user can write to the state directory", true)
	if err := os.Chmod(s.state, 0o700); err != nil {
		t.Fatal(err)
	}
	ends()

	// Only tenond sees the read-only directory of the jobs.
	file := s.dir(batch)
	if s.tree.VersionOf("memory") == 1 {
		file = strings.Replace(file, "/cgroup/cpu/", "/cgroup/memory/", 1)
	}
	inside := func(script string) {
		t.Helper()
		text, err := exec.Command("nsenter", "--mount", "--target", itoa(d.Process.Pid), "sh", "-c", script, file).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, text)
		}
	}
	inside(`mount --bind "$0" "$0" && mount -o remount,bind,ro "$0"`)
	s.run("batch/last", "sleep", "600")
	says("read-only file system", false)
	inside(`umount --lazy "$0"`)
	ends()
	d.stop()
	s.restore()
}
