package work

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"tenon.sh/tenon/internal/lab/load/protocol"
	"tenon.sh/tenon/internal/lab/testbed"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// A Kind is a service that a user can choose by its name. It has a file of its own.
type Kind struct {
	Name    string
	Scheme  string // of the protocol in which it answers; empty: it generates its own load
	Program Program
	// Prepare says how to start the service. It makes the directory of a service that
	// needs one.
	Prepare func(ctx context.Context, in *testbed.Site, at place) (Service, error)
}

// kinds lists all kinds. The first is the default.
var kinds = []Kind{nginxKind, redisKind, memcachedKind, postgresKind, selfKind}

// Services lists the services that a user can choose by name.
var Services = func() (names []string) {
	for _, k := range kinds {
		names = append(names, k.Name)
	}
	return names
}()

// kindOf returns the kind with a name. If there is none, it returns the zero Kind.
func kindOf(name string) Kind {
	if i := slices.Index(Services, name); i >= 0 {
		return kinds[i]
	}
	return Kind{}
}

// A place is where a service of some kind shall run.
type place struct {
	path    string // of the program
	version Version
	host    string
	port    int
	threads int // number of CPUs of the service
	// connections is the number of connections that the client opens.
	connections int
}

// address returns where the service listens.
func (p place) address() string { return net.JoinHostPort(p.host, strconv.Itoa(p.port)) }

// serviceStart is the time within which a service must be ready.
const serviceStart = 30 * time.Second

// A Service is a program under load.
type Service struct {
	testbed.Child
	URL string // the address to which the load is sent; empty: the load is a command
	// Ready is a shell command that ends with status 0 if the service is ready.
	// If it is empty, the service is ready when URL answers.
	Ready string

	address string         // where it listens, if the lab chose that
	fill    []string       // SQL statements at each start
	end     syscall.Signal // ends the service; 0: SIGTERM
}

// FindService returns a service. command is the name of a service, or a shell
// command that starts one. A named service listens on a port of the loopback
// device (0: a free port), for a number of connections.
func FindService(ctx context.Context, in *testbed.Site, command string, port, threads, connections int) (s Service, version string, err error) {
	k := kindOf(command)
	if k.Prepare == nil {
		return Service{Child: testbed.Child{Name: programOf(command), Argv: shell(command)}}, "", nil
	}
	at := place{host: loopback, threads: threads, connections: connections}
	if at.port, err = freePort(port); err != nil {
		return s, "", err
	}
	if at.path, err = k.Program.Find(); err != nil {
		return s, "", err
	}
	if at.version, version, err = k.Program.Ask(ctx, at.path); err != nil {
		return s, "", err
	}
	if s, err = k.Prepare(ctx, in, at); err != nil {
		return s, "", err
	}
	s.Name, s.address = k.Name, at.address()
	return s, version, nil
}

// loopback is the host on which all services listen.
const loopback = "127.0.0.1"

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

// freePort returns a port of the loopback device that is not in use: the wanted
// one, or any if that is 0.
func freePort(wanted int) (int, error) {
	if wanted != 0 {
		return wanted, portFree(net.JoinHostPort(loopback, strconv.Itoa(wanted)))
	}
	l, err := net.Listen("tcp", loopback+":0")
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// shell returns the argv that runs a shell command of the user. A simple
// command replaces the shell, so that the command gets the signals.
func shell(command string) []string {
	if !strings.ContainsAny(command, ";&|\n(){}") {
		command = "exec " + command
	}
	return []string{"/bin/sh", "-c", command}
}

// programOf returns the name of the program with which a command begins. Tables
// show this name.
func programOf(command string) string {
	first, _, _ := strings.Cut(strings.TrimSpace(command), " ")
	if i := strings.LastIndexByte(first, '/'); i >= 0 {
		first = first[i+1:]
	}
	odd := func(c rune) bool { return c <= ' ' || c > '~' || strings.ContainsRune(`"'|;&<>$`, c) }
	if first == "" || strings.ContainsFunc(first, odd) {
		return "command"
	}
	return first
}

// Start starts the service in its cgroup and waits until it is ready.
func (s Service) Start(ctx context.Context, in testbed.Groups, group node.CgroupPath, cpus unit.CPUSet) (*testbed.Process, error) {
	if s.address != "" {
		if err := portFree(s.address); err != nil {
			return nil, err
		}
	}
	s.Group, s.CPUs = group, cpus
	p, err := testbed.Start(in, s.Child)
	if err != nil {
		return nil, err
	}
	err = s.awaitReady(ctx, p)
	if err == nil && len(s.fill) > 0 {
		err = protocol.Execute(ctx, s.URL, serviceStart, s.fill...)
	}
	if err != nil {
		s.Stop(p)
		return nil, err
	}
	return p, nil
}

// Stop ends the service.
func (s Service) Stop(p *testbed.Process) { p.Stop(cmp.Or(s.end, syscall.SIGTERM), 3*time.Second) }

func (s Service) awaitReady(ctx context.Context, p *testbed.Process) error {
	for deadline := time.Now().Add(serviceStart); ; {
		err := s.ready(ctx)
		if p.HasEnded() { // another program may have answered
			return fmt.Errorf("service %s did not start: %w", s.Name, errors.Join(p.Err(), p.EndedEarly()))
		}
		if err == nil {
			return nil
		}
		select {
		case <-p.Done():
			continue
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("service %s is not ready after %v: %w%s", s.Name, serviceStart, err, testbed.QuoteOutput(p.Stderr.Bytes()))
		}
	}
}

func (s Service) ready(ctx context.Context) error {
	if s.Ready == "" {
		return protocol.Ready(ctx, s.URL)
	}
	ctx, cancel := context.WithTimeout(ctx, serviceStart)
	defer cancel()
	if out, err := exec.CommandContext(ctx, "/bin/sh", "-c", s.Ready).CombinedOutput(); err != nil {
		return fmt.Errorf("--ready: %w%s", err, testbed.QuoteOutput(out))
	}
	return nil
}
