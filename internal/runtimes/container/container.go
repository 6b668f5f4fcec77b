// Package container lists the containers of this machine, with their labels. It
// asks the container runtimes over their local sockets.
package container

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"strings"
	"syscall"
)

// A Container is a container that is created, running or paused.
type Container struct {
	// ID identifies the container in its runtime. In Docker and Podman it has
	// 64 hexadecimal digits, and the name of the cgroup contains it.
	ID string
	// Name is the name of the container, or its ID if it has none.
	Name   string
	Labels map[string]string
	// PID is the first process of the container, in the PID namespace of this
	// machine. It is 0 if it was not known at the time of the listing.
	PID int
	// Cgroup is the path of the container's cgroup, if Locate has found it. If
	// Cgroup is empty, Groups finds the cgroup by the ID.
	Cgroup string
	// User is the user who runs the runtime, if it is neither root nor the user
	// of this process. Such a runtime is rootless, and its user can make it
	// answer anything.
	User uint32 `json:",omitempty"`
}

// A Runtime is a client of a container runtime with a local socket. It is safe
// for concurrent use.
type Runtime interface {
	// List returns the containers that have not ended, in any order.
	List(context.Context) ([]Container, error)
	// Close closes the connection.
	Close() error
}

// Sockets are the addresses of the sockets that runtimes usually have.
var Sockets = []string{
	"docker:///run/docker.sock",
	"podman:///run/podman/podman.sock",
	"containerd:///run/containerd/containerd.sock",
}

// ErrAbsent means that the socket does not exist: the runtime is not installed,
// or does not run.
var ErrAbsent = errors.New("there is no such socket")

// Check returns an error if address is not the address of a runtime's socket.
// Sockets shows examples of valid ones.
func Check(address string) error {
	kind, socket, _ := strings.Cut(address, "://")
	switch {
	case !path.IsAbs(socket):
	case kind == "docker", kind == "podman", kind == "containerd":
		return nil
	}
	return fmt.Errorf("%.200q: want docker://, podman:// or containerd:// and the absolute path of a socket", address)
}

// UserOf returns the owner of the socket at an address, as Container.User.
func UserOf(address string) (uint32, error) {
	_, socket, _ := strings.Cut(address, "://")
	info, err := os.Stat(socket)
	if err != nil {
		return 0, fmt.Errorf("find the owner of %s: %w", address, err)
	}
	stat, known := info.Sys().(*syscall.Stat_t)
	if !known {
		return 0, fmt.Errorf("find the owner of %s: %w", address, errors.ErrUnsupported)
	}
	if int(stat.Uid) == os.Geteuid() {
		return 0, nil
	}
	return stat.Uid, nil
}

// Open makes a client for the runtime at an address, for example one of
// Sockets. It does not connect to the runtime.
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
