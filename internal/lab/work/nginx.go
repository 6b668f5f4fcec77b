package work

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"tenon.sh/tenon/internal/lab/testbed"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// NGINXProgram is the server.
var NGINXProgram = Program{Name: "nginx", Packages: "apt install nginx-light | dnf install nginx | apk add nginx", Version: []string{"-v"}}

var nginxKind = Kind{Name: "nginx", Scheme: "http", Program: NGINXProgram, Prepare: func(_ context.Context, in *testbed.Site, at place) (Service, error) {
	n, err := PrepareNGINX(in, NGINX{Path: at.path, Version: at.version, Workers: at.threads}, at.port, at.connections)
	return n.service(), err
}}

// An NGINX is the nginx of the distribution, with the configuration of the
// published experiment.
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
	Before func(pid int) error
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

func (n NGINX) service() Service {
	return Service{Child: testbed.Child{Name: "nginx", Argv: n.args(), Before: n.Before}, URL: n.URL(), address: n.Address}
}

// Start starts nginx in its cgroup and waits until it answers.
func (n NGINX) Start(ctx context.Context, in testbed.Groups, group node.CgroupPath, cpus unit.CPUSet) (*testbed.Process, error) {
	return n.service().Start(ctx, in, group, cpus)
}

// Stop ends nginx and its workers.
func (n NGINX) Stop(p *testbed.Process) { n.service().Stop(p) }

// PrepareNGINX gives nginx a directory and a port. Port 0 means a free port.
func PrepareNGINX(s *testbed.Site, n NGINX, port, connections int) (NGINX, error) {
	dir, err := s.Directory("")
	if err != nil {
		return n, fmt.Errorf("make a directory for nginx: %w", err)
	}
	if port, err = freePort(port); err != nil {
		return n, err
	}
	n.Dir = dir
	n.Address = net.JoinHostPort(loopback, strconv.Itoa(port))
	n.Connections = connections
	if n.Workers == 0 {
		n.Workers = s.Place.Tested.Len()
	}
	return n, n.Prepare()
}
