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

var (
	RedisProgram     = Program{"redis-server", "apt install redis-server | dnf install redis | apk add redis", []string{"--version"}}
	MemcachedProgram = Program{"memcached", "apt install memcached | dnf install memcached | apk add memcached", []string{"-V"}}
	XZProgram        = Program{"xz", "apt install xz-utils | dnf install xz | apk add xz", []string{"--version"}}
	CompilerProgram  = Program{"cc", "apt install gcc libc6-dev | dnf install gcc | apk add gcc musl-dev", []string{"--version"}}
)

// Services lists the services that a user can choose by name.
var Services = []string{"nginx", "redis", "memcached", "postgres", selfName}

// selfName is the name of the service that generates its own load.
const selfName = "self"

// serviceStart is the time within which a service must be ready.
const serviceStart = 30 * time.Second

// A Service is a program under load that is not the lab's nginx.
type Service struct {
	Name string
	Argv []string
	URL  string // the address to which the load is sent; empty: the load is a command
	// Ready is a shell command that ends with status 0 if the service is ready.
	// If it is empty, the service is ready when URL answers.
	Ready   string
	Session bool // see testbed.Child

	user *syscall.Credential // see testbed.Child
	fill []string            // SQL statements at each start
	end  syscall.Signal      // ends the service; 0: SIGTERM
}

// FindService returns a service. command is the name of a service, or a shell
// command that starts one. A named service listens on a port of the loopback
// device (0: a free port). If it needs a directory, FindService makes one.
func FindService(ctx context.Context, in *testbed.Site, command string, port, threads int) (s Service, version string, err error) {
	s.Name = command
	if !slices.Contains(Services, command) {
		s.Argv = shell(command)
		s.Name = programOf(command)
		return s, "", nil
	}
	if port == 0 {
		if port, err = freePort(); err != nil {
			return s, "", err
		}
	}
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	if err := portFree(address); err != nil {
		return s, "", err
	}
	program := map[string]Program{"redis": RedisProgram, "memcached": MemcachedProgram, "postgres": PostgresProgram}[command]
	path, err := program.Find()
	if err != nil {
		return s, "", err
	}
	switch command {
	case "redis":
		s.Argv = []string{path, "--bind", "127.0.0.1", "--port", strconv.Itoa(port), "--save", "", "--appendonly", "no", "--daemonize", "no", "--loglevel", "warning"}
		s.URL = "redis://" + address
	case "memcached":
		s.Argv = []string{path, "-u", "daemon", "-l", "127.0.0.1", "-p", strconv.Itoa(port), "-U", "0", "-t", strconv.Itoa(threads), "-c", "4096"}
		s.URL = "memcached://" + address
	case "postgres":
		if err := preparePostgres(ctx, in, &s, path, address); err != nil {
			return s, "", err
		}
	}
	_, version, err = program.Ask(ctx, path)
	return s, version, err
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
	p, err := testbed.Start(in, testbed.Child{Name: s.Name, Argv: s.Argv, Group: group, CPUs: cpus, Session: s.Session, User: s.user})
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
