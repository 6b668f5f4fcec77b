// Package nri gives a pod's containers the right values before their first
// instruction runs: it is a plugin of the container runtime (NRI, the Node
// Resource Interface of containerd and CRI-O).
//
// It may be slow, lost or absent, and no pod waits for it: each answer has a
// deadline far below the runtime's, what fails is answered with "no change",
// and a lost connection is made again. The loop of the agent puts right what
// the plugin has missed.
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
	// DefaultSocket is where runtimes offer NRI.
	DefaultSocket = api.DefaultSocketPath
	// DefaultDeadline is how long an answer may take. The runtime waits 2 s
	// (api.DefaultPluginRequestTimeout), and as long no pod starts.
	DefaultDeadline = 200 * time.Millisecond

	name = "tenon"
	// index orders the plugins of a runtime. Late: Tenon sees what the others
	// have set, as it will be in force.
	index = "90"
	// soonest and latest bound the wait before a lost connection is made
	// again.
	soonest, latest = 100 * time.Millisecond, 5 * time.Second
	// A runtime that takes the connection and does not answer costs what a stub
	// leaves behind each time: the wait goes up to muteLatest then, and after
	// mostMute times it ends only when the runtime makes its socket anew.
	muteLatest = 5 * time.Minute
	mostMute   = 10
	// registering is how long the runtime may take to configure a plugin. How
	// long it takes to tell what runs then is not bounded: containerd waits for
	// any container that is just being stopped.
	registering = 2 * api.DefaultPluginRegistrationTimeout
)

// A Pod is what the runtime knows of one.
type Pod struct {
	Namespace, Name, UID string
	Labels, Annotations  map[string]string
	// CgroupParent is that of its containers, as the kubelet said it: a path
	// with the cgroupfs driver, a slice with that of systemd.
	CgroupParent string
}

func (p Pod) String() string { return p.Namespace + "/" + p.Name }

// Limits are the values of a container's cgroup in the words of the container
// runtime interface. What is nil stays as the kubelet wants it, and so does the
// weight: the kubelet takes what a pod has for what it asked for.
type Limits struct {
	Quota  *int64  // µs in a period; -1: none
	Period *uint64 // µs
	Memory *int64  // bytes; -1: none
	// Unified are files of cgroup v2 and their values: memory.high. A runtime
	// refuses them on v1.
	Unified map[string]string
}

// Values says which values pods and containers are to have. Its methods are
// called from many goroutines. They should return when ctx ends; the runtime
// gets its answer in any case.
type Values interface {
	// Sandbox makes the cgroup of a new pod right. It has no containers yet.
	Sandbox(context.Context, Pod) error
	// Container returns the values of a container; false: the pod's owner asks
	// nothing of Tenon, so all stays as the kubelet wants it.
	Container(ctx context.Context, p Pod, container string) (Limits, bool, error)
}

// A Link is how the plugin stands with the runtime.
type Link struct {
	// Runtime is its name and version; empty: there is no connection.
	Runtime string
	// Err says why there is none.
	Err error
}

// Options say what to connect to, and what to answer.
type Options struct {
	Socket string // empty: DefaultSocket
	Values Values
	// V1 says that cpu is on cgroup v1. The kernel there refuses a quota above
	// that of a parent (tg_cfs_schedulable_down), and suppress lowers the
	// parents': a container would fail to start. So its quota is left out; that
	// of its pod bounds it.
	V1       bool
	Deadline time.Duration // of one answer; 0: DefaultDeadline
	Log      *slog.Logger
	// Changed is called when the link comes or goes; nil: it is not.
	Changed func(Link)
	// Leaves is asked when Run is told to end: whether the containers are to get
	// the kubelet's values back first; nil: they are not.
	Leaves func() bool
}

func (o Options) filled() Options {
	if o.Socket == "" {
		o.Socket = DefaultSocket
	}
	if o.Deadline <= 0 {
		o.Deadline = DefaultDeadline
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

// Run answers the runtime until ctx ends, and connects again whenever the
// connection is lost. It returns ctx's error, or ErrReleased if it has given the
// containers the kubelet's values again, as Leaves has asked for.
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
				err = fmt.Errorf("%w, %d times: it is tried again when the runtime has started anew", err, mute)
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

// rest waits before the next connection, and for one without an end until the
// runtime has made its socket anew; ctx's error: it has ended.
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

// A socketID tells one socket from the next at the same path, whose inode may have
// the same number. The zero one: there is none.
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

// session is one connection, from its first to its last byte. It calls
// connected when the runtime has taken the plugin. The error is never nil.
func session(ctx context.Context, p *plugin, connected func(Link)) error {
	// The connection outlives ctx: what was set is given back on it.
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	conn, err := (&net.Dialer{Timeout: registering}).DialContext(ctx, "unix", p.Socket)
	if err != nil {
		return err // it names the socket
	}
	defer conn.Close()
	s, err := stub.New(p,
		stub.WithPluginName(name), stub.WithPluginIdx(index), stub.WithConnection(conn), stub.WithLogger(logger{p.Log}),
		// A timeout, should there be one, neither fails the pod nor ends the
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
	// Until it is configured, a stub waits without end, also on a connection
	// that is no more, and cannot be stopped: it is left alone then.
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

// stopped waits for a stub that was told to stop.
func stopped(ended <-chan error) error {
	select {
	case err := <-ended:
		_ = err // it was asked to end: how it did says nothing
		return nil
	case <-time.After(latest):
		return errStops
	}
}

// lost says what the end of a connection means.
func lost(err error) error {
	if err == nil {
		return errLost
	}
	return fmt.Errorf("%w: %w", errLost, err)
}
