package nri

import (
	"context"
	"io"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/api"
	nrilog "github.com/containerd/nri/pkg/log"
	"google.golang.org/protobuf/proto"
)

func TestMain(m *testing.M) {
	nrilog.Set(logger{slog.New(slog.DiscardHandler)}) // the log of the runtime
	os.Exit(m.Run())
}

// A memoryRuntime is a container runtime with pods and containers in memory.
// It uses the same NRI library as containerd and CRI-O.
type memoryRuntime struct {
	*adaptation.Adaptation
	socket string

	mu      sync.Mutex
	pods    []*api.PodSandbox
	has     []*api.Container
	updates []*api.ContainerUpdate // in the answer to the synchronization
	asked   []*api.ContainerUpdate // unsolicited, from the plugin
	refuse  bool
}

// start starts a runtime that listens on a socket. The path of the socket is
// short, because the kernel limits its length.
func start(t *testing.T, pods []*api.PodSandbox, has []*api.Container) *memoryRuntime {
	t.Helper()
	dir, err := os.MkdirTemp("", "nri")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	c := &memoryRuntime{pods: pods, has: has, socket: filepath.Join(dir, "s")}
	nowhere := t.TempDir()
	c.Adaptation, err = adaptation.New("testing", "v1", c.synchronize, c.update,
		adaptation.WithSocketPath(c.socket), adaptation.WithPluginPath(nowhere), adaptation.WithPluginConfigPath(nowhere))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Stop)
	return c
}

func (c *memoryRuntime) synchronize(ctx context.Context, cb adaptation.SyncCB) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	updates, err := cb(ctx, c.pods, c.has)
	c.updates = append(c.updates, updates...)
	return err
}

func (c *memoryRuntime) update(_ context.Context, updates []*api.ContainerUpdate) ([]*api.ContainerUpdate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked = append(c.asked, updates...)
	if c.refuse {
		return updates, nil
	}
	return nil, nil
}

// create creates a container in the runtime. It returns how the plugin changed
// the container.
func (c *memoryRuntime) create(t *testing.T, pod *api.PodSandbox, has *api.Container) *api.LinuxResources {
	t.Helper()
	defer c.BlockPluginSync().Unblock()
	r, err := c.CreateContainer(t.Context(), &api.CreateContainerRequest{Pod: pod, Container: has})
	if err != nil {
		t.Fatalf("the container is not created: %v", err)
	}
	if got := r.GetAdjust().GetLinux().GetResources(); proto.Size(got.GetCpu())+proto.Size(got.GetMemory())+len(got.GetUnified()) > 0 {
		return got
	}
	return nil
}

// A cable forwards connections to a socket until a test cuts them. It is needed
// because the library does not close the connections of plugins when it stops.
// They are closed only when its process ends.
type cable struct {
	socket string
	mu     sync.Mutex
	ends   []net.Conn
}

func wire(t *testing.T, to string) *cable {
	t.Helper()
	c := &cable{socket: to + "w"}
	l, err := net.Listen("unix", c.socket)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("unix", to)
			if err != nil {
				_ = near.Close()
				continue
			}
			c.mu.Lock()
			c.ends = append(c.ends, near, far)
			c.mu.Unlock()
			go func() { _, _ = io.Copy(near, far) }()
			go func() { _, _ = io.Copy(far, near) }()
		}
	}()
	t.Cleanup(func() { _ = l.Close(); c.cut() })
	return c
}

func (c *cable) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, end := range c.ends {
		_ = end.Close()
	}
	c.ends = nil
}

// plug runs the plugin until the test ends. It waits until the runtime has
// registered the plugin.
func plug(t *testing.T, o Options) <-chan Link {
	t.Helper()
	links, linked := make(chan Link, 100), make(chan struct{}, 100)
	o.Changed = func(l Link) {
		links <- l
		if l.Runtime != "" {
			linked <- struct{}{}
		}
	}
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = Run(ctx, o) })
	t.Cleanup(func() { stop(); running.Wait() })
	await(t, "connection", linked)
	return links
}

func await[T any](t *testing.T, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(30 * time.Second):
		t.Fatalf("no %s", what)
		panic("not reached")
	}
}

// tableValues is a Values whose answers are in a table. The key is the pod and
// the container.
type tableValues struct {
	of      map[string]Limits
	err     error
	hold    chan struct{} // if not nil, an answer waits for it
	panics  bool
	started chan Pod // receives the pod of each call of Sandbox
	created chan Created
}

func (a *tableValues) Sandbox(ctx context.Context, p Pod) error {
	if a.started != nil {
		a.started <- p
	}
	_, _, err := a.Container(ctx, p, "")
	return err
}

func (a *tableValues) Container(_ context.Context, p Pod, container string) (Limits, bool, error) {
	if a.hold != nil {
		<-a.hold // ignores the end of its context
	}
	if a.panics {
		panic("cannot go on")
	}
	l, ok := a.of[p.Name+"/"+container]
	return l, ok, a.err
}

func (a *tableValues) Starting(ctx context.Context, p Pod, c Created) error {
	if a.created != nil {
		a.created <- c
	}
	_, _, err := a.Container(ctx, p, "")
	return err
}

func sandbox(name string) *api.PodSandbox {
	return &api.PodSandbox{Id: "sandbox-" + name, Name: name, Namespace: "default", Uid: "uid-" + name, Linux: &api.LinuxPodSandbox{CgroupParent: "/kubepods/besteffort/pod" + name}}
}

// besteffort returns the container that a kubelet creates if a container has no
// requests.
func besteffort(pod, name string) *api.Container {
	return &api.Container{Id: pod + "-" + name, PodSandboxId: "sandbox-" + pod, Name: name, State: api.ContainerState_CONTAINER_RUNNING, Linux: &api.LinuxContainer{Resources: &api.LinuxResources{
		Cpu:    &api.LinuxCPU{Shares: api.UInt64(uint64(2)), Quota: api.Int64(int64(0)), Period: api.UInt64(uint64(100_000))},
		Memory: &api.LinuxMemory{Limit: api.Int64(int64(0))},
	}}}
}

// batchLimits returns the values of a container that has one CPU and 1 GiB.
func batchLimits() Limits {
	return Limits{Quota: new(int64(100_000)), Period: new(uint64(100_000)), Memory: new(int64(1 << 30)), Unified: map[string]string{"memory.high": "1000000000"}}
}

func keys(u map[string]string) []string { return slices.Sorted(maps.Keys(u)) }
