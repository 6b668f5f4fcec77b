package exchange

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/kernel/exchange"
)

// A server is a program that answers one request of a connection at a time.
type server struct {
	program string
	command func(t *testing.T, path string, port int) *exec.Cmd
	hello   []byte // opens a connection; nil: none
	request []byte
	// answer reads one answer.
	answer func(r *bufio.Reader) error
}

// serverUser owns no files. PostgreSQL refuses to run as root.
const serverUser = 65534

var servers = map[string]server{
	"redis": {
		program: "redis-server",
		command: func(_ *testing.T, path string, port int) *exec.Cmd {
			return exec.Command(path, "--bind", "127.0.0.1", "--port", strconv.Itoa(port), "--save", "", "--appendonly", "no")
		},
		request: []byte("PING\r\n"), answer: readLine,
	},
	"memcached": {
		program: "memcached",
		command: func(_ *testing.T, path string, port int) *exec.Cmd {
			return exec.Command(path, "-l", "127.0.0.1", "-U", "0", "-u", "nobody", "-p", strconv.Itoa(port))
		},
		request: []byte("version\r\n"), answer: readLine,
	},
	"postgres": {
		program: "postgres", command: postgres,
		hello: message(0, "\x00\x03\x00\x00user\x00tenon\x00database\x00postgres\x00\x00"), request: message('Q', "SELECT 1\x00"), answer: readUntilReady,
	},
}

func readLine(r *bufio.Reader) error {
	_, err := r.ReadString('\n')
	return err
}

// message returns a message of PostgreSQL. The first one of a connection has no type.
func message(kind byte, text string) []byte {
	var m []byte
	if kind != 0 {
		m = append(m, kind)
	}
	return append(binary.BigEndian.AppendUint32(m, uint32(4+len(text))), text...)
}

// readUntilReady reads the messages of PostgreSQL up to ReadyForQuery.
func readUntilReady(r *bufio.Reader) error {
	for head := make([]byte, 5); ; {
		if _, err := io.ReadFull(r, head); err != nil {
			return err
		}
		text := make([]byte, binary.BigEndian.Uint32(head[1:])-4)
		if _, err := io.ReadFull(r, text); err != nil {
			return err
		}
		switch head[0] {
		case 'E':
			return fmt.Errorf("the server says %q", text)
		case 'Z':
			return nil
		}
	}
}

// postgres makes a database and returns the command that serves it.
func postgres(t *testing.T, path string, port int) *exec.Cmd {
	path, err := filepath.EvalSymlinks(path)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "tenon-test-postgres-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chown(dir, serverUser, serverUser); err != nil {
		t.Fatal(err)
	}
	as := func(name string, args ...string) *exec.Cmd {
		cmd := exec.Command(filepath.Join(filepath.Dir(path), name), args...)
		cmd.Dir, cmd.SysProcAttr = "/", &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: serverUser, Gid: serverUser}}
		return cmd
	}
	data := filepath.Join(dir, "data")
	if text, err := as("initdb", "-D", data, "-U", "tenon", "-A", "trust", "--no-sync").CombinedOutput(); err != nil {
		t.Fatalf("initdb: %v\n%s", err, text)
	}
	return as("postgres", "-D", data, "-p", strconv.Itoa(port), "-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=")
}

// find returns the path of a program.
func find(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err == nil {
		return path
	}
	if found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + name); len(found) > 0 {
		return found[0]
	}
	if os.Getenv("TENON_TEST_STRICT") == "1" {
		t.Fatalf("TENON_TEST_STRICT is set, and %v", err)
	}
	t.Skip(err)
	return ""
}

// TestRealServersAreDecided asks servers of other projects, one request at a time on
// each of several connections, and wants each request in the histogram.
func TestRealServersAreDecided(t *testing.T) {
	tree, err := cgroup.Detect("/proc")
	var p *exchange.Probe
	if err == nil {
		p, err = exchange.Open(exchange.Options{CgroupVersion: tree.Version()})
	}
	if err != nil {
		if os.Getenv("TENON_TEST_STRICT") == "1" && !errors.Is(err, os.ErrPermission) {
			t.Fatalf("TENON_TEST_STRICT is set, and requests cannot be measured: %v", err)
		}
		t.Skipf("needs root, cgroups and BPF: %v", err)
	}
	defer p.Close()
	for name, s := range servers {
		t.Run(name, func(t *testing.T) {
			path := find(t, s.program)
			group := fmt.Sprintf("tenon-test-servers-%d-%s", os.Getpid(), name)
			if err := tree.Make(group); err != nil {
				t.Skipf("needs cgroups that it may write: %v", err)
			}
			t.Cleanup(func() {
				if err := tree.RemoveAll(group); err != nil {
					t.Error(err)
				}
			})
			id, err := tree.Inode(group)
			if err != nil {
				t.Fatal(err)
			}
			port := freePort(t)
			cmd := s.command(t, path, port)
			if cmd.SysProcAttr == nil {
				cmd.SysProcAttr = &syscall.SysProcAttr{}
			}
			cmd.SysProcAttr.Setpgid = true
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) // the fast end of PostgreSQL
				_ = cmd.Wait()
			})
			if err := tree.Attach(group, cmd.Process.Pid); err != nil {
				t.Fatal(err)
			}
			const connections, each = 4, 100
			address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
			all := make([]*bufio.ReadWriter, connections)
			for i := range all {
				all[i] = connect(t, s, address)
			}
			service, err := p.Track(id, port, exchange.Bounds())
			if err != nil {
				t.Fatal(err)
			}
			for range each {
				for _, c := range all {
					if err := ask(c, s.request, s.answer); err != nil {
						t.Fatal(err)
					}
				}
			}
			r, err := service.Read()
			if err != nil {
				t.Fatal(err)
			}
			total := uint64(0)
			for _, n := range r.Counts {
				total += n
			}
			t.Logf("%d exchanges, %d overlapped, %d unasked", total, r.Overlapped, r.Unasked)
			if most := uint64(connections * each / 100); total+most < connections*each || total > connections*each || r.Unsure() > most {
				t.Errorf("%d exchanges and %d that could not be told, want %d and at most %d", total, r.Unsure(), connections*each, most)
			}
		})
	}
}

// connect connects to a server as soon as it answers.
func connect(t *testing.T, s server, address string) *bufio.ReadWriter {
	t.Helper()
	var last error
	for begun := time.Now(); time.Since(begun) < time.Minute; time.Sleep(50 * time.Millisecond) {
		c, err := net.Dial("tcp", address)
		if last = err; err != nil {
			continue
		}
		both := bufio.NewReadWriter(bufio.NewReader(c), bufio.NewWriter(c))
		if last = c.SetDeadline(time.Now().Add(time.Minute)); last == nil && s.hello != nil {
			last = ask(both, s.hello, s.answer)
		}
		if last == nil {
			t.Cleanup(func() { _ = c.Close() })
			return both
		}
		_ = c.Close()
	}
	t.Fatalf("%s does not answer: %v", s.program, last)
	return nil
}

func ask(c *bufio.ReadWriter, request []byte, answer func(*bufio.Reader) error) error {
	if _, err := c.Write(request); err != nil {
		return err
	}
	if err := c.Flush(); err != nil {
		return err
	}
	return answer(c.Reader)
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}
