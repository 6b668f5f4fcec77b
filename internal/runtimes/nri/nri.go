// Package nri gives the containers of a pod their limits before their first
// instruction runs. It is a plugin of the container runtime, through NRI (Node
// Resource Interface) of containerd and CRI-O.
//
// No pod waits for long for a plugin that is slow or lost. The deadline of an
// answer is far below that of the runtime, and after an error the answer is "no
// change". If the connection breaks, the plugin connects again. For containers
// that started meanwhile, the loop of the agent writes the values.
//
// The runtime asks its plugins under one lock for the whole node. Until it has
// an answer, it creates, starts and stops no other container. So a Values must
// also bound the sum of its waits, as package containerstart does.
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
	// DefaultDeadline is the deadline of an answer. The runtime waits at most 2
	// s (api.DefaultPluginRequestTimeout). Until it has the answer, the pod
	// does not start.
	DefaultDeadline = 200 * time.Millisecond
	// DefaultStartDeadline is the time for which the plugin may delay the start of
	// a created container. It is longer than DefaultDeadline, because a container
	// that starts too early runs on the wrong CPUs or without a limit.
	DefaultStartDeadline = time.Second

	name = "tenon"
	// A runtime asks its plugins in the order of index. The value is high, so
	// that Tenon sees the changes of the other plugins.
	index = "90"
	// minWait and latest are the minimum and the maximum wait before the plugin
	// connects again.
	minWait, latest = 100 * time.Millisecond, 5 * time.Second
	// If a runtime accepts connections but does not answer, each attempt to
	// connect leaks a stub. Then the wait between attempts grows to muteLatest.
	// After maxMute attempts, the plugin makes the next one only when the
	// runtime has created its socket again.
	muteLatest = 5 * time.Minute
	maxMute    = 10
	// registerTimeout is the time that the runtime may take to configure the plugin.
	// After that, it may take any time to list its containers, because containerd
	// waits for each container that is being stopped.
	registerTimeout = 2 * api.DefaultPluginRegistrationTimeout
)

// A Pod is a pod as the runtime knows it.
type Pod struct {
	Namespace, Name, UID string
	Labels, Annotations  map[string]string
	// CgroupParent is the parent of the cgroups of the pod's containers. The
	// kubelet has set it: with its driver cgroupfs to a path, with its driver
	// systemd to a slice.
	CgroupParent string
}

func (p Pod) String() string { return p.Namespace + "/" + p.Name }

// Limits are values for the cgroup of a container, in the terms of the
// container runtime interface. A nil field keeps the value of the kubelet.
// There is no CPU weight: the kubelet would read it back and take it for the
// CPU request of the pod.
type Limits struct {
	Quota  *int64  // µs per period; -1: no quota
	Period *uint64 // µs
	Memory *int64  // bytes; -1: no limit
	// Unified maps files of cgroup v2, such as memory.high, to their values. A
	// runtime refuses it on cgroup v1.
	Unified map[string]string
}

// Values decides the values of pods and containers. Its methods must be safe
// for concurrent use. A method should return when ctx ends; if it does not, the
// plugin answers the runtime without it.
type Values interface {
	// Sandbox sets the values of the cgroup of a new pod. The pod has no
	// containers yet.
	Sandbox(context.Context, Pod) error
	// Container returns the values of a container. If it returns false, Tenon
	// does not manage the pod, and the values of the kubelet stay.
	Container(ctx context.Context, p Pod, container string) (Limits, bool, error)
	// Starting is called between the creation of the container's cgroup and the
	// container's first instruction. The runtime waits until Starting has
	// returned.
	Starting(ctx context.Context, p Pod, c Created) error
}

// A Created is a container that the runtime has created and not started.
type Created struct {
	Name string // in the pod's spec
	// ID is the id of the container as the kubelet reports it. It begins with
	// the name of the runtime: containerd://0123abcd.
	ID string
}

// A Link is the state of the connection to the runtime.
type Link struct {
	// Runtime is the name and version of the runtime. It is empty if there is
	// no connection.
	Runtime string
	// Err is the reason why there is no connection.
	Err error
}

// Options configure the plugin.
type Options struct {
	Socket string // empty: DefaultSocket
	Values Values
	// V1 means that the cpu controller is on cgroup v1. On v1 the kernel
	// refuses a quota that is above the quota of a parent
	// (tg_cfs_schedulable_down). CPU suppress lowers the quotas of parents, so
	// a container with a quota would fail to start. Therefore the plugin sets
	// no quota for the container, which has the quota of its pod as a bound.
	V1       bool
	Deadline time.Duration // maximum time of an answer; 0: DefaultDeadline
	// StartDeadline is the time that Values.Starting may take. 0 means
	// DefaultStartDeadline. The plugin uses at most three quarters of the time
	// that the runtime gives a plugin before it drops it.
	StartDeadline time.Duration
	Log           *slog.Logger
	// Changed is called when a connection starts or ends. It may be nil.
	Changed func(Link)
	// Ignores reports whether Tenon leaves the pod with a UID alone. Then the plugin
	// restores the kubelet's values of its containers within a second or two. nil
	// means that it leaves none alone.
	Ignores func(uid string) bool
	// Leaves is called when the context of Run ends. It reports whether the
	// plugin first restores the kubelet's values of the containers. nil means
	// that it does not.
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
	if o.Ignores == nil {
		o.Ignores = func(string) bool { return false }
	}
	if o.Leaves == nil {
		o.Leaves = func() bool { return false }
	}
	return o
}

// Run answers the runtime until ctx ends, and connects again after a lost
// connection. It returns the error of ctx, or ErrReleased if it has restored
// the kubelet's values of the containers.
func Run(ctx context.Context, o Options) error {
	o = o.filled()
	wait, said, mute := minWait, "", 0
	for {
		socket := socketAt(o.Socket)
		err := session(ctx, newPlugin(o), func(l Link) {
			wait, said, mute = minWait, "", 0
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
			if mute++; mute == maxMute {
				err = fmt.Errorf("%w, %d times: the next attempt follows when the runtime has started again", err, mute)
			}
		}
		if text := err.Error(); text != said {
			o.Log.Warn("NRI: not connected: containers get their values after they have started", "error", err)
			o.Changed(Link{Err: err})
			said = text
		}
		if err := waitBeforeRetry(ctx, o.Socket, socket, wait, mute >= maxMute); err != nil {
			return err
		}
		if mute >= maxMute {
			wait, mute = minWait, 0
			continue
		}
		most := latest
		if mute > 0 {
			most = muteLatest
		}
		wait = min(2*wait, most)
	}
}

// waitBeforeRetry waits before the next attempt to connect: for the given time
// or, if endless is set, until the runtime has created its socket again. It
// returns the error of ctx if ctx ends first.
func waitBeforeRetry(ctx context.Context, path string, socket socketID, wait time.Duration, endless bool) error {
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
	errMute  = fmt.Errorf("the runtime did not configure the plugin within %v", registerTimeout)
	errStops = errors.New("the plugin does not stop")
)

// session makes one connection, and returns when the connection ends. When
// the runtime has registered the plugin, session calls the function
// connected. The returned error is never nil.
func session(ctx context.Context, p *plugin, connected func(Link)) error {
	// The connection outlives ctx, because the plugin still needs it to release
	// the containers.
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	conn, err := (&net.Dialer{Timeout: registerTimeout}).DialContext(ctx, "unix", p.Socket)
	if err != nil {
		return err // the error contains the path of the socket
	}
	defer conn.Close()
	s, err := stub.New(p,
		stub.WithPluginName(name), stub.WithPluginIdx(index), stub.WithConnection(conn), stub.WithLogger(logger{p.Log}),
		// After a timeout, the runtime must neither fail the pod nor close the
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
	// A stub that is not configured blocks forever, even after the connection
	// is closed. There is no way to stop it, so session abandons it.
	select {
	case <-p.configured:
	case err := <-ended:
		return lostError(err)
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(registerTimeout):
		return errMute
	}
	for {
		select {
		case runtime := <-p.synchronized:
			connected(Link{Runtime: runtime})
		case err := <-ended:
			return lostError(err)
		case err := <-p.finished:
			cancel()
			return errors.Join(err, awaitStop(ended))
		case <-ctx.Done():
			err := ctx.Err()
			if p.Leaves() {
				err = p.leave()
			}
			cancel()
			return errors.Join(err, awaitStop(ended))
		}
	}
}

// awaitStop waits until a stub has stopped.
func awaitStop(ended <-chan error) error {
	select {
	case err := <-ended:
		_ = err // the plugin stopped the stub, so its error does not matter
		return nil
	case <-time.After(latest):
		return errStops
	}
}

// lostError returns the error for a connection that has ended.
func lostError(err error) error {
	if err == nil {
		return errLost
	}
	return fmt.Errorf("%w: %w", errLost, err)
}
