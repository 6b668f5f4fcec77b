package cluster

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"tenon.sh/tenon/test/cluster/image"
)

// initEnv is an environment variable with the folder of a cluster. A process
// that has it becomes the init of the cluster.
const initEnv = "TENON_CLUSTER_INIT"

// registryAddress is the registry from which nodes pull.
const registryAddress = "127.0.0.1:5000"

// An initConfig is the configuration of the init, in init.json.
type initConfig struct {
	Images   image.Registry
	Systemd  bool // of the machine, for kubelet and containerd
	Lifeline bool // standard input is a pipe that closes when the starter ends
}

// Main starts the init of a cluster. A program that starts clusters must call
// it first in main or TestMain. In the init's process it never returns. In all
// others it returns at once.
func Main() {
	dir := os.Getenv(initEnv)
	if dir == "" {
		return
	}
	log.Fatalf("cluster init: %v", runInit(dir))
}

// startInit starts this program again, as process 1 of new namespaces.
func (c *Cluster) startInit(ctx context.Context, keep bool, images image.Layout) error {
	unlock, err := lockFolders()
	if err != nil {
		return err
	}
	defer unlock()
	for _, other := range otherClusters(c.Name) {
		c.Made = append(c.Made, other.Made...)
	}
	for _, dir := range []string{"/var/lib/kubelet", "/var/lib/cni", "/var/lib/containerd"} {
		if _, err := os.Stat(dir); err == nil {
			continue
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		c.Made = append(c.Made, dir)
	}
	text, err := json.Marshal(initConfig{Images: image.Registry{{Dir: c.file("images")}, images}, Systemd: c.Systemd, Lifeline: !keep})
	if err != nil {
		return err
	}
	if err := os.WriteFile(c.file("init.json"), text, 0o644); err != nil {
		return err
	}
	out, err := os.Create(c.file("log", "init.log"))
	if err != nil {
		return err
	}
	defer out.Close()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), initEnv+"="+c.Dir)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWNET}
	if !c.Systemd { // runc names the first process of a container to systemd by its PID
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWPID
	}
	if !keep {
		read, write, err := os.Pipe()
		if err != nil {
			return err
		}
		defer read.Close()
		cmd.Stdin, c.lifeline = read, write
	}
	if err := c.runOnSystemCPUs(cmd.Start); err != nil {
		return fmt.Errorf("start the init: %w", err)
	}
	c.Init, c.Born = cmd.Process.Pid, startTimeOf(fmt.Sprintf("/proc/%d", cmd.Process.Pid))
	go func() { _ = cmd.Wait() }()
	if c.Network, err = os.Readlink(fmt.Sprintf("/proc/%d/ns/net", c.Init)); err != nil {
		return fmt.Errorf("start the init: %w", err)
	}
	if err := c.save(); err != nil {
		return err
	}
	unlock() // the other clusters know the folders now
	return retry(ctx, 10*time.Second, func() error {
		if !c.alive() {
			return fmt.Errorf("%w: the init ended: %s", errFinal, tail(c.file("log", "init.log")))
		}
		_, err := os.Stat(c.file("run", "dial.sock"))
		return err
	})
}

// lockFolders locks the directories that all clusters of this machine use as
// mount points. Until unlock is called, no other cluster creates or removes
// them.
func lockFolders() (unlock func(), err error) {
	f, err := os.OpenFile(filepath.Join(os.TempDir(), "tenon-clusters.lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return sync.OnceFunc(func() { _ = f.Close() }), nil
}

// runInit runs the cluster's init. It returns only after an error.
func runInit(dir string) error {
	var config initConfig
	text, err := os.ReadFile(filepath.Join(dir, "init.json"))
	if err == nil {
		err = json.Unmarshal(text, &config)
	}
	if err != nil {
		return err
	}
	if err := furnish(config.Systemd); err != nil {
		return err
	}
	go reap()
	if config.Lifeline {
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin)
			os.Exit(0)
		}()
	}
	registry, err := net.Listen("tcp", registryAddress)
	if err != nil {
		return err
	}
	go func() { log.Print(http.Serve(registry, config.Images.Handler())) }()
	go func() { log.Print(serveMetrics(dir)) }()
	return serveDial(filepath.Join(dir, "run", "dial.sock"))
}

// furnish prepares the mounts and the network of the new namespaces. With systemd,
// its folder in /run stays there, which has the socket for its clients.
func furnish(systemd bool) error {
	// Mounts made here must propagate to the mount namespaces of nodes and
	// pods, but not to the machine.
	for _, flag := range []uintptr{unix.MS_SLAVE, unix.MS_SHARED} {
		if err := unix.Mount("", "/", "", unix.MS_REC|flag, ""); err != nil {
			return fmt.Errorf("make mounts private: %w", err)
		}
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	keep := -1
	if systemd {
		var err error
		if keep, err = unix.Open(systemdDir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err != nil {
			return fmt.Errorf("open %s: %w", systemdDir, err)
		}
		defer func() { _ = unix.Close(keep) }()
	}
	for _, dir := range []string{"/run", "/var/lib/cni"} {
		if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=755"); err != nil {
			return fmt.Errorf("mount %s: %w", dir, err)
		}
	}
	if systemd {
		err := os.Mkdir(systemdDir, 0o755)
		if err == nil {
			err = unix.Mount(fmt.Sprintf("/proc/self/fd/%d", keep), systemdDir, "", unix.MS_BIND, "")
		}
		if err != nil {
			return fmt.Errorf("mount %s: %w", systemdDir, err)
		}
	}
	for _, args := range []string{"link set lo up", "address add " + serviceIP + "/32 dev lo", "address add " + controlIP + "/32 dev lo"} {
		if out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %s: %w: %s", args, err, out)
		}
	}
	return nil
}

// reap reaps orphaned processes, a duty of PID 1.
func reap() {
	died := make(chan os.Signal, 1)
	signal.Notify(died, syscall.SIGCHLD)
	for range died {
		for {
			pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
			if pid <= 0 || err != nil {
				break
			}
		}
	}
}

// serveDial lets processes outside the cluster connect to addresses inside. A
// client first sends one line with network and address. serveDial then forwards
// its connection.
func serveDial(socket string) error {
	l, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	for {
		outer, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer outer.Close()
			in := bufio.NewReader(outer)
			line, err := in.ReadString('\n')
			network, address, ok := strings.Cut(strings.TrimSpace(line), " ")
			if err != nil || !ok {
				return
			}
			inner, err := net.DialTimeout(network, address, 10*time.Second)
			if err != nil {
				_, _ = fmt.Fprintln(outer, err)
				return
			}
			defer inner.Close()
			_, _ = fmt.Fprintln(outer, "ok")
			go func() {
				_, _ = io.Copy(inner, in)
				if half, ok := inner.(interface{ CloseWrite() error }); ok {
					_ = half.CloseWrite()
				}
			}()
			_, _ = io.Copy(outer, inner)
		}()
	}
}

// Dial connects to an address in the cluster's network, from inside or outside
// the cluster. It fits http.Transport and client-go's rest.Config.
func (c *Cluster) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", c.file("run", "dial.sock"))
	if err != nil {
		return nil, fmt.Errorf("reach cluster %s: %w", c.Name, err)
	}
	if _, err := fmt.Fprintf(conn, "%s %s\n", network, address); err != nil {
		conn.Close()
		return nil, err
	}
	var answer []byte
	for b := make([]byte, 1); ; { // read no byte after the line
		if _, err := io.ReadFull(conn, b); err != nil {
			conn.Close()
			return nil, fmt.Errorf("dial %s in cluster %s: %w", address, c.Name, err)
		}
		if b[0] == '\n' {
			break
		}
		answer = append(answer, b[0])
	}
	if string(answer) != "ok" {
		conn.Close()
		return nil, fmt.Errorf("dial in cluster %s: %s", c.Name, answer)
	}
	return conn, nil
}
