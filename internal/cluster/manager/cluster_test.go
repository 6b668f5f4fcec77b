package manager

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"tenon.sh/tenon/api/v1alpha1"

	"tenon.sh/tenon/internal/cluster/certificate"
	"tenon.sh/tenon/internal/cluster/webhooks"
)

// control is the control plane for all tests of this package: a real API server
// and its etcd. There are no kubelets.
var control struct {
	once sync.Once
	env  *envtest.Environment
	rc   *rest.Config
	err  error
}

func TestMain(m *testing.M) {
	status := m.Run()
	if control.env != nil && control.rc != nil {
		if err := control.env.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, "stop the control plane:", err)
		}
	}
	os.Exit(status)
}

// binaries returns a folder with kube-apiserver and etcd. It is
// KUBEBUILDER_ASSETS. If that is not set, it is the folder to which the tests
// of test/cluster build both.
func binaries(t testing.TB) string {
	t.Helper()
	home, _ := os.UserCacheDir()
	for _, dir := range []string{os.Getenv("KUBEBUILDER_ASSETS"), filepath.Join(home, "tenon", "cluster", "bin")} {
		server, err := os.Stat(filepath.Join(dir, "kube-apiserver"))
		_, none := os.Stat(filepath.Join(dir, "etcd"))
		if dir != "" && err == nil && none == nil && !server.IsDir() {
			return dir
		}
	}
	const why = "there is no kube-apiserver and no etcd: set KUBEBUILDER_ASSETS to a folder with both (test/cluster builds them)"
	if os.Getenv("TENON_TEST_STRICT") == "1" {
		t.Fatal(why)
	}
	t.Skip(why)
	return ""
}

// A scene is a cluster for one test. It has no nodes, and its settings enable
// colocation.
type scene struct {
	t       testing.TB
	rc      *rest.Config
	client  client.WithWatch
	name    string
	config  client.ObjectKey
	port    int
	ctx     context.Context
	serials atomic.Int64
}

var scenes atomic.Int64

func newScene(t testing.TB) *scene {
	t.Helper()
	dir := binaries(t)
	control.once.Do(func() {
		os.Setenv("KUBEBUILDER_CONTROLPLANE_START_TIMEOUT", "60s")
		control.env = &envtest.Environment{
			BinaryAssetsDirectory: dir,
			CRDInstallOptions:     envtest.CRDInstallOptions{Paths: []string{filepath.Join("..", "..", "..", "deploy", "crds")}, ErrorIfPathMissing: true},
		}
		// Pods need no service account, because no kubelet runs them.
		control.env.ControlPlane.GetAPIServer().Configure().Append("disable-admission-plugins", "ServiceAccount")
		control.rc, control.err = control.env.Start()
	})
	if control.err != nil {
		t.Fatalf("start a control plane from %s: %v", dir, control.err)
	}
	types, err := newScheme()
	if err != nil {
		t.Fatal(err)
	}
	rc := rest.CopyConfig(control.rc)
	rc.QPS, rc.Burst = -1, 0
	c, err := client.NewWithWatch(rc, client.Options{Scheme: types})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &scene{t: t, rc: control.rc, client: c, name: fmt.Sprintf("scene-%d", scenes.Add(1)), ctx: ctx}
	s.config = client.ObjectKey{Namespace: s.name, Name: "slo-controller-config"}
	t.Cleanup(func() {
		s.must(c.DeleteAllOf(ctx, &corev1.Node{}), c.DeleteAllOf(ctx, &v1alpha1.NodeReport{}))
		cancel()
	})
	s.must(c.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.name}}))
	s.must(c.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: s.config.Name}, Data: map[string]string{"colocation-config": `{"enable":true}`}}))
	return s
}

func (s *scene) must(errs ...error) {
	s.t.Helper()
	for _, err := range errs {
		if err != nil {
			s.t.Fatal(err)
		}
	}
}

// minor returns the minor version of the API server, such as 37 of Kubernetes 1.37. The
// tests also run on the oldest accepted one (scripts/oldest-apiserver.sh), which lacks
// pods/resize (before 1.33) and the resources of a whole pod (before 1.34).
func (s *scene) minor() int {
	s.t.Helper()
	d, err := discovery.NewDiscoveryClientForConfig(control.rc)
	s.must(err)
	v, err := d.ServerVersion()
	s.must(err)
	minor, err := strconv.Atoi(strings.TrimSuffix(v.Minor, "+"))
	s.must(err)
	return minor
}

// A replica is a running manager.
type replica struct {
	*scene
	log      *watchedLog
	registry *prometheus.Registry
	stop     context.CancelFunc
	done     chan struct{}
	err      error
}

// start runs a manager until the test ends or calls end. The given functions
// may change the options of the manager.
func (s *scene) start(change ...func(*Options)) *replica {
	s.t.Helper()
	return s.startAgain(func() bool { return false }, change...)
}

// startAgain is start for a manager that begins again when it has lost its lease, while
// again returns true. In a cluster the kubelet starts it again. On a busy machine a
// manager may lose its lease at any time.
func (s *scene) startAgain(again func() bool, change ...func(*Options)) *replica {
	s.t.Helper()
	ctx, cancel := context.WithCancel(s.ctx)
	r := &replica{scene: s, log: &watchedLog{}, registry: prometheus.NewRegistry(), stop: cancel, done: make(chan struct{})}
	o := Options{
		Namespace: s.name, Name: s.name, Config: s.config, Elect: true, Lease: 3 * time.Second, Lifetimes: certificate.DefaultLifetimes,
		Log: slog.New(slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug})), registry: r.registry,
	}
	for _, f := range change {
		f(&o)
	}
	rc := s.rc
	go func() {
		defer close(r.done)
		for {
			if r.err = Run(ctx, rc, o); ctx.Err() != nil || !lostLease(r.err) || !again() {
				return
			}
			o.registry = prometheus.NewRegistry()
		}
	}()
	s.t.Cleanup(func() {
		r.end()
		if s.t.Failed() {
			s.t.Logf("log:\n%s", r.log.last(60))
		}
	})
	return r
}

// end stops a replica, and waits until it has stopped.
func (r *replica) end() {
	r.stop()
	<-r.done
	if r.err != nil && !lostLease(r.err) && !strings.Contains(r.err.Error(), "context canceled") {
		r.t.Errorf("the manager ended: %v", r.err)
	}
}

// lostLease reports whether a manager ended because it no longer had its lease.
func lostLease(err error) bool {
	return err != nil && strings.Contains(err.Error(), "leader election lost")
}

// webhooks makes a manager serve the webhooks. It also makes the API server
// call them.
func (s *scene) webhooks(o *Options) {
	if s.port == 0 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		s.must(err)
		s.port = l.Addr().(*net.TCPAddr).Port
		s.must(l.Close())
		service := webhooks.Service{Namespace: s.name, URL: fmt.Sprintf("https://127.0.0.1:%d", s.port)}
		m, v := webhooks.Configurations(s.name, service, s.config)
		s.must(s.client.Create(s.ctx, m), s.client.Create(s.ctx, v))
		s.t.Cleanup(func() { s.must(s.client.Delete(s.ctx, m), s.client.Delete(s.ctx, v)) })
	}
	o.Host, o.Port = "127.0.0.1", s.port
	o.Service = webhooks.Service{Namespace: s.name, URL: fmt.Sprintf("https://127.0.0.1:%d", s.port)}
}

// node creates a node with 16 CPUs and 64 GiB.
func (s *scene) node(name string) {
	s.t.Helper()
	n := machineOf(16, 64)
	n.Name = name
	status := n.Status
	s.must(s.client.Create(s.ctx, n))
	n.Status = status
	s.must(s.client.Status().Update(s.ctx, n))
}

// report writes a report as an agent does: it sets the status without the part
// that the manager writes.
func (s *scene) report(name string, b *v1alpha1.Batch) time.Time {
	s.t.Helper()
	n := s.serials.Add(1)
	r := &v1alpha1.NodeReport{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := s.client.Create(s.ctx, r); err != nil && !apierrors.IsAlreadyExists(err) {
		s.t.Fatal(err)
	}
	s.must(s.client.Get(s.ctx, client.ObjectKey{Name: name}, r))
	old := r.DeepCopy()
	r.Status.Reported, r.Status.Run, r.Status.Sequence, r.Status.Batch = metav1.NowMicro(), "test", n, *b
	at := time.Now()
	s.must(s.client.Status().Patch(s.ctx, r, client.MergeFrom(old), client.FieldOwner("tenond")))
	return at
}

// batchResources returns the batch resources in the status of a node. If
// capacity and allocatable differ, it fails the test.
func (s *scene) batchResources(name string) string {
	s.t.Helper()
	var n corev1.Node
	s.must(s.client.Get(s.ctx, client.ObjectKey{Name: name}, &n))
	f := factsOf(&n)
	if f.Present != f.Capped {
		s.t.Errorf("half a write: allocatable %s, capacity %s", amounts(f.Present), amounts(f.Capped))
	}
	return amounts(f.Present)
}

// publishedPart returns the part of the report that the manager writes.
func (s *scene) publishedPart(name string) v1alpha1.Published {
	s.t.Helper()
	var r v1alpha1.NodeReport
	s.must(s.client.Get(s.ctx, client.ObjectKey{Name: name}, &r))
	if r.Status.Published == nil {
		return v1alpha1.Published{}
	}
	return *r.Status.Published
}

// becomes waits until a node has the wanted batch resources. It
// returns how long this took.
func (s *scene) becomes(name, want string, within time.Duration) time.Duration {
	s.t.Helper()
	start, last := time.Now(), ""
	for time.Since(start) < within {
		if last = s.batchResources(name); last == want {
			return time.Since(start)
		}
		time.Sleep(5 * time.Millisecond)
	}
	s.t.Fatalf("after %v node %s has %s, want %s; %s", within, name, last, want, s.publishedPart(name).Reason)
	return 0
}

// waitUntil waits until a condition is true.
func (s *scene) waitUntil(what string, within time.Duration, holds func() bool) {
	s.t.Helper()
	for start := time.Now(); time.Since(start) < within; time.Sleep(10 * time.Millisecond) {
		if holds() {
			return
		}
	}
	s.t.Fatalf("not within %v: %s", within, what)
}

// watchedLog is a log in memory.
type watchedLog struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *watchedLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *watchedLog) count(what string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), what)
}

func (l *watchedLog) last(n int) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	lines := strings.Split(l.text.String(), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
