// Package nri gives the containers of a pod their limits before their first
// instruction runs. It is a plugin of the container runtime, through NRI (Node
// Resource Interface) of containerd and CRI-O.
//
// No pod waits for a plugin that is slow or lost: each answer has a deadline
// far below that of the runtime, an error results in the answer "no change",
// and the plugin connects again after it has lost the connection. The loop of
// the agent writes the values that the plugin has missed.
package nri

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"
	"golang.org/x/sys/unix"
)

const (
	// DefaultSocket is the default path of the NRI socket of a runtime.
	DefaultSocket = api.DefaultSocketPath
	// DefaultDeadline is the maximum time of an answer. The runtime waits at
	// most 2 s (api.DefaultPluginRequestTimeout), and the pod does not start
	// until the runtime has an answer.
	DefaultDeadline = 200 * time.Millisecond
	// DefaultStartDeadline is the maximum time for which the start of a created
	// container waits. It is longer than DefaultDeadline, because a container
	// that starts too early runs on the wrong CPUs or without a limit.
	DefaultStartDeadline = time.Second

	name = "tenon"
	// index determines the order of the plugins of a runtime. The value is
	// high, so that Tenon sees the changes of the other plugins.
	index = "90"
	// soonest and latest are the minimum and the maximum wait before the plugin
	// connects again.
	soonest, latest = 100 * time.Millisecond, 5 * time.Second
	// If a runtime accepts connections but does not answer, each attempt to
	// connect leaks a stub. The wait between attempts then grows to muteLatest.
	// After mostMute attempts, the plugin waits until the runtime has created
	// its socket again.
	muteLatest = 5 * time.Minute
	mostMute   = 10
	// registering is the maximum time in which the runtime must configure the
	// plugin. The time until the runtime lists its containers has no limit,
	// because containerd waits for each container that is being stopped.
	registering = 2 * api.DefaultPluginRegistrationTimeout
)

// A Pod is a pod with the data that the runtime has.
type Pod struct {
	Namespace, Name, UID string
	Labels, Annotations  map[string]string
	// CgroupParent is the parent cgroup of its containers, as the kubelet set
	// it: a path with the driver cgroupfs, a slice with the driver systemd.
	CgroupParent string
}

func (p Pod) String() string { return p.Namespace + "/" + p.Name }

// Limits are values for the cgroup of a container, in the terms of the
// container runtime interface. A nil value means that the value of the kubelet
// stays. There is no weight, because the kubelet reads the weight back as the
// CPU request of the pod.
type Limits struct {
	Quota  *int64  // µs per period; -1: no quota
	Period *uint64 // µs
	Memory *int64  // bytes; -1: no limit
	// Unified maps files of cgroup v2, such as memory.high, to their values. A
	// runtime refuses it on cgroup v1.
	Unified map[string]string
}

// Values decides the values of pods and containers. Several goroutines call its
// methods. A method should return when ctx ends; the plugin answers the runtime
// in any case.
type Values interface {
	// Sandbox sets the values of the cgroup of a new pod, which has no
	// containers yet.
	Sandbox(context.Context, Pod) error
	// Container returns the values of a container. It returns false if Tenon
	// does not manage the pod, so that the values of the kubelet stay.
	Container(ctx context.Context, p Pod, container string) (Limits, bool, error)
	// Starting is called when the cgroup of a container exists and its first
	// instruction has not run. The runtime starts the container when Starting
	// has returned.
	Starting(ctx context.Context, p Pod, c Created) error
}

// A Created is a container that the runtime has created and not started.
type Created struct {
	Name string // in the pod's spec
	// ID is the id of the container as the kubelet reports it, with the name of
	// the runtime: containerd://0123abcd.
	ID string
}

// A Link is the state of the connection to the runtime.
type Link struct {
	// Runtime is the name and version of the runtime; empty: there is no
	// connection.
	Runtime string
	// Err is the error if there is no connection.
	Err error
}

// Options configure the plugin.
type Options struct {
	Socket string // empty: DefaultSocket
	Values Values
	// V1 means that the cpu controller is on cgroup v1. That kernel refuses a
	// quota above the quota of a parent (tg_cfs_schedulable_down). CPU suppress
	// lowers the quotas of the parents, so that a container with a quota would
	// fail to start. The plugin therefore omits the quota, and the quota of the
	// pod bounds the container.
	V1       bool
	Deadline time.Duration // maximum time of an answer; 0: DefaultDeadline
	// StartDeadline is the maximum time of Values.Starting; 0:
	// DefaultStartDeadline. It is at most three quarters of the time after
	// which the runtime drops a plugin.
	StartDeadline time.Duration
	Log           *slog.Logger
	// Changed is called when the connection starts or ends; nil: not called.
	Changed func(Link)
	// Leaves is called when the context of Run ends. It reports whether the
	// plugin must first give the containers the values of the kubelet again;
	// nil: it must not.
	Leaves func() bool
}

func (o Options) filled() Options {
	if o.Socket == "" {
		o.Socket = DefaultSocket
	}
	if o.Deadline <= 0 {
		o.Deadline = DefaultDeadline
	}
	if o.StartDeadline <= 0 {
		o.StartDeadline = DefaultStartDeadline
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Changed == nil {
		o.Changed = func(Link) {}
	}
	if o.Leaves == nil {
		o.Leaves = func() bool { return false }
	}
	return o
}

// Run answers the runtime until ctx ends, and connects again after each lost
// connection. It returns the error of ctx, or ErrReleased if it has given the
// containers the values of the kubelet again.
func Run(ctx context.Context, o Options) error {
	o = o.filled()
	wait, said, mute := soonest, "", 0
	for {
		socket := socketAt(o.Socket)
		err := session(ctx, newPlugin(o), func(l Link) {
			wait, said, mute = soonest, "", 0
			o.Log.Info("NRI: connected: containers get their values before they start", "runtime", l.Runtime)
			o.Changed(l)
		})
		if ctx.Err() != nil {
			if errors.Is(err, ErrReleased) {
				return ErrReleased
			}
			return ctx.Err()
		}
		if errors.Is(err, errMute) {
			if mute++; mute == mostMute {
				err = fmt.Errorf("%w, %d times: the next attempt follows when the runtime has started again", err, mute)
			}
		}
		if text := err.Error(); text != said {
			o.Log.Warn("NRI: not connected: containers get their values after they have started", "error", err)
			o.Changed(Link{Err: err})
			said = text
		}
		if err := rest(ctx, o.Socket, socket, wait, mute >= mostMute); err != nil {
			return err
		}
		if mute >= mostMute {
			wait, mute = soonest, 0
			continue
		}
		most := latest
		if mute > 0 {
			most = muteLatest
		}
		wait = min(2*wait, most)
	}
}

// rest waits before the next connection. If endless is true, it waits until the
// runtime has created its socket again. It returns the error of ctx if that
// ends first.
func rest(ctx context.Context, path string, socket socketID, wait time.Duration, endless bool) error {
	for end := time.Now().Add(wait); endless || time.Now().Before(end); {
		step := latest
		if !endless {
			step = min(time.Until(end), latest)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(step):
		}
		if now := socketAt(path); now != (socketID{}) && now != socket {
			return nil
		}
	}
	return nil
}

// A socketID distinguishes a socket from a later one at the same path, which
// may have the same inode number. The zero socketID means that there is no
// socket.
type socketID struct {
	inode uint64
	made  unix.Timespec
}

func socketAt(path string) socketID {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return socketID{}
	}
	return socketID{st.Ino, st.Ctim}
}

var (
	errLost  = errors.New("the runtime closed the connection")
	errMute  = fmt.Errorf("the runtime did not configure the plugin within %v", registering)
	errStops = errors.New("the plugin does not stop")
)

// session makes one connection, and returns when it ends. It calls connected
// when the runtime has registered the plugin. The error is never nil.
func session(ctx context.Context, p *plugin, connected func(Link)) error {
	// The connection stays open after ctx has ended, because the plugin
	// releases the containers over it.
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	conn, err := (&net.Dialer{Timeout: registering}).DialContext(ctx, "unix", p.Socket)
	if err != nil {
		return err // the error contains the path of the socket
	}
	defer conn.Close()
	s, err := stub.New(p,
		stub.WithPluginName(name), stub.WithPluginIdx(index), stub.WithConnection(conn), stub.WithLogger(logger{p.Log}),
		// After a timeout, the runtime must not fail the pod or close the
		// connection.
		stub.WithFailurePolicy(&api.FailurePolicy{KeepConnected: true}),
	)
	if err != nil {
		return err
	}
	p.stub = s
	ended := make(chan error, 1)
	go func() { ended <- s.Run(life) }()
	if !p.release {
		go p.catchUp(life)
	}
	// A stub that is not configured blocks without limit, even if the
	// connection is closed. It cannot be stopped, so session returns without
	// it.
	select {
	case <-p.configured:
	case err := <-ended:
		return lost(err)
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(registering):
		return errMute
	}
	for {
		select {
		case runtime := <-p.synchronized:
			connected(Link{Runtime: runtime})
		case err := <-ended:
			return lost(err)
		case err := <-p.finished:
			cancel()
			return errors.Join(err, stopped(ended))
		case <-ctx.Done():
			err := ctx.Err()
			if p.Leaves() {
				err = p.leave()
			}
			cancel()
			return errors.Join(err, stopped(ended))
		}
	}
}

// stopped waits until a stub has stopped.
func stopped(ended <-chan error) error {
	select {
	case err := <-ended:
		_ = err // the plugin stopped the stub, so its error does not matter
		return nil
	case <-time.After(latest):
		return errStops
	}
}

// lost returns the error for the end of a connection.
func lost(err error) error {
	if err == nil {
		return errLost
	}
	return fmt.Errorf("%w: %w", errLost, err)
}
