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
)

const (
	// heldConnections is how many connections a client tries to hold.
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

// isHealthy asks tenond for its health.
func isHealthy(address string) error {
	client := http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Get("http://" + address + "/healthz")
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", answer.Status, text)
	}
	return err
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
