package work

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"tenon.sh/tenon/internal/lab/testbed"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// An NGINX is the service: the nginx of the distribution, with the
// configuration of the published experiment.
type NGINX struct {
	Path        string // path of the program
	Version     Version
	Dir         string // prefix, a directory that the lab makes
	Address     string // host:port
	Workers     int
	Connections int    // number of connections that the client opens
	Pages       string // directory of the pages; empty: a new one with one page
	// Before is called with the PID of the process before the process executes
	// nginx. It may be nil.
	Before  func(pid int) error
	Session bool // see testbed.Child
}

// pageSize is the size of the answer in bytes. nginx's own index.html, which
// the published experiments requested, has the same size.
const pageSize = 612

// Config returns nginx.conf. Settings that it does not contain have nginx's
// defaults, as in the published experiment. keepalive_requests is so high that
// nginx does not close a connection of the client during a run.
func (n NGINX) Config() string {
	connections := max(1024, n.Connections+128)
	return fmt.Sprintf(`worker_processes %d;
worker_rlimit_nofile %d;
pid %s;
error_log stderr error;
events {
    worker_connections %d;
}
http {
    access_log off;
    client_body_temp_path %s;
    keepalive_requests 1000000000;
    keepalive_timeout 3600s;
    server {
        listen %s;
        gzip off;
        root %s;
        index index.html;
    }
}
`, n.Workers, 2*connections, quote(n.file("nginx.pid")), connections, quote(n.file("body")), n.Address, quote(n.pages()))
}

func quote(path string) string { return strconv.Quote(path) }

func (n NGINX) pages() string { return cmp.Or(n.Pages, n.file("html")) }

func (n NGINX) file(name string) string { return filepath.Join(n.Dir, name) }

// Prepare writes the configuration and the page.
func (n NGINX) Prepare() error {
	page := []byte("<!doctype html><title>Tenon lab</title>\n")
	page = append(page, strings.Repeat("nginx answers, ffmpeg waits.\n", pageSize)[:pageSize-len(page)]...)
	err := os.MkdirAll(n.pages(), 0o755)
	if err == nil {
		err = os.WriteFile(filepath.Join(n.pages(), "index.html"), page, 0o644)
	}
	if err == nil {
		err = os.WriteFile(n.file("nginx.conf"), []byte(n.Config()), 0o644)
	}
	if err == nil {
		// The workers drop their privileges, but must be able to read the page.
		err = os.Chmod(n.Dir, 0o755)
	}
	if err != nil {
		return fmt.Errorf("prepare nginx: %w", err)
	}
	return nil
}

// args returns nginx's arguments. nginx runs in the foreground, and does not
// use the files of the nginx that is installed as a service.
func (n NGINX) args() []string {
	args := []string{n.Path, "-p", n.Dir, "-c", n.file("nginx.conf"), "-g", "daemon off;"}
	if n.Version.AtLeast(1, 20) { // since 1.19.5
		args = append(args, "-e", "stderr")
	}
	return args
}

// URL returns the address of the page.
func (n NGINX) URL() string { return "http://" + n.Address + "/" }

// Start starts nginx in its cgroup and waits until it answers.
func (n NGINX) Start(ctx context.Context, in testbed.Groups, group node.CgroupPath, cpus unit.CPUSet) (*testbed.Process, error) {
	if err := portFree(n.Address); err != nil {
		return nil, err
	}
	p, err := testbed.Start(in, testbed.Child{Name: "nginx", Argv: n.args(), Group: group, CPUs: cpus, Session: n.Session, Before: n.Before})
	if err != nil {
		return nil, err
	}
	if err := n.answers(ctx, p); err != nil {
		n.Stop(p)
		return nil, err
	}
	return p, nil
}

// Stop ends nginx and its workers.
func (n NGINX) Stop(p *testbed.Process) { p.Stop(syscall.SIGTERM, 2*time.Second) }

func (n NGINX) answers(ctx context.Context, p *testbed.Process) error {
	client := http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	deadline := time.Now().Add(10 * time.Second)
	for {
		resp, err := client.Get(n.URL())
		if err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
			err = fmt.Errorf("it answers %s%s", resp.Status, testbed.QuoteOutput(p.Stderr.Bytes()))
			return fmt.Errorf("nginx on %s: %w", n.Address, err)
		}
		select {
		case <-p.Done():
			return fmt.Errorf("nginx did not start on %s: %w", n.Address, errors.Join(p.Err(), p.EndedEarly()))
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("nginx on %s does not answer: %w", n.Address, err)
		}
	}
}

// portFree returns an error if a program already listens on the address.
func portFree(address string) error {
	l, err := net.Listen("tcp", address)
	if err == nil {
		return l.Close()
	}
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("port %s is in use by another program: choose another with --port, or leave --port out to let the lab choose", address)
	}
	return fmt.Errorf("listen on %s: %w", address, err)
}

// freePort returns a port of the loopback device that is not in use.
func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// PrepareNGINX gives nginx a directory and a port. Port 0 means a free port.
func PrepareNGINX(s *testbed.Site, n NGINX, port, connections int) (NGINX, error) {
	dir, err := s.Directory("")
	if err != nil {
		return n, fmt.Errorf("make a directory for nginx: %w", err)
	}
	if port == 0 {
		if port, err = freePort(); err != nil {
			return n, err
		}
	}
	n.Dir = dir
	n.Address = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	n.Connections = connections
	if n.Workers == 0 {
		n.Workers = s.Place.Tested.Len()
	}
	if err := portFree(n.Address); err != nil {
		return n, err
	}
	return n, n.Prepare()
}
