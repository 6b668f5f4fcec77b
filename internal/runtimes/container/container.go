// Package container asks the container runtimes of this machine, over their
// local sockets, which containers there are, and with which labels.
package container

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"strings"
)

// A Container is one that is about to run, runs or is paused.
type Container struct {
	// ID names it for its runtime. Docker's and Podman's are 64 hexadecimal
	// digits and stand in the name of the container's cgroup.
	ID string
	// Name is the container's name; its ID if it has no name.
	Name   string
	Labels map[string]string
	// PID is its first process, as this machine numbers it, when it was
	// listed; 0: not known.
	PID int
	// Cgroup is the path of its cgroup, as Locate found it; empty: only the
	// ID tells.
	Cgroup string
}

// A Runtime is a container runtime that answers on a local socket. It is safe
// for concurrent use.
type Runtime interface {
	// List returns the containers that have not ended, in no order.
	List(context.Context) ([]Container, error)
	// Close ends the connection.
	Close() error
}

// Sockets are the places at which runtimes are usually found.
var Sockets = []string{
	"docker:///run/docker.sock",
	"podman:///run/podman/podman.sock",
	"containerd:///run/containerd/containerd.sock",
}

// ErrAbsent means that there is no such socket: the runtime is not installed,
// or does not run.
var ErrAbsent = errors.New("there is no such socket")

// Check returns an error for a text that is not the address of a socket, as in
// Sockets.
func Check(address string) error {
	kind, socket, _ := strings.Cut(address, "://")
	switch {
	case !path.IsAbs(socket):
	case kind == "docker", kind == "podman", kind == "containerd":
		return nil
	}
	return fmt.Errorf("%q: want docker://, podman:// or containerd:// and the absolute path of a socket", address)
}

// Open makes a client for the runtime at an address, as in Sockets. It does
// not talk to it yet.
func Open(address string) (Runtime, error) {
	if err := Check(address); err != nil {
		return nil, err
	}
	kind, socket, _ := strings.Cut(address, "://")
	if info, err := os.Stat(socket); err != nil || info.Mode().Type() != os.ModeSocket {
		return nil, fmt.Errorf("open %s: %w", address, ErrAbsent)
	}
	if kind == "containerd" {
		return openContainerd(socket)
	}
	return openDocker(kind, socket), nil
}
