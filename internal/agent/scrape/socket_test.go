package scrape

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/kernel/exchange"
	"tenon.sh/tenon/internal/kernel/proc"
	"tenon.sh/tenon/internal/model/node"
)

// A socketScene is a service with an objective at its sockets.
type socketScene struct {
	*testing.T
	r        Readers
	target   Target
	snapshot node.Snapshot
	loads    int
}

func newSocketScene(t *testing.T, port int, load func(exchange.Options) (meter, error)) *socketScene {
	s := &socketScene{T: t}
	s.r.every = 10 * time.Millisecond
	var mu sync.Mutex
	s.r.probe.load = func(o exchange.Options) (meter, error) {
		mu.Lock()
		defer mu.Unlock()
		s.loads++
		return load(o)
	}
	s.target = Target{Workload: "shop/web", Want: node.RequestObjective{Source: node.SourceSocket, Port: port}}
	s.target.Want.Within[4] = 30 * time.Millisecond
	web := node.Workload{ID: "shop/web", Class: node.LS}
	web.Objective.Requests = s.target.Want
	s.snapshot.Workloads = []node.Workload{web}
	t.Cleanup(s.r.Close)
	return s
}

func (s *socketScene) fill(until func(node.Requests) bool) node.Requests {
	s.Helper()
	var got node.Requests
	for range 1000 {
		s.snapshot.At = time.Unix(1e9, 0).Add(time.Since(begun))
		s.snapshot.Workloads[0].Usage.Requests = node.Requests{}
		s.r.Fill(&s.snapshot)
		if got = s.snapshot.Workloads[0].Usage.Requests; until(got) {
			return got
		}
		time.Sleep(10 * time.Millisecond)
	}
	s.Fatalf("the reading stays %+v", got)
	return got
}

// ownGroup moves this process into a cgroup of its own until the end of the test. It
// returns the number of the cgroup.
func ownGroup(t *testing.T, tree *cgroup.Tree) uint64 {
	t.Helper()
	before, err := proc.FindCPUPath(proc.Default().SelfCgroup())
	if err != nil {
		t.Skipf("needs cgroups: %v", err)
	}
	group := fmt.Sprintf("tenon-test-scrape-%d", os.Getpid())
	if err := tree.Make(group); err != nil {
		t.Skipf("needs cgroups that it may write: %v", err)
	}
	t.Cleanup(func() {
		if err := errors.Join(tree.Attach(strings.Trim(before, "/"), os.Getpid()), tree.RemoveAll(group)); err != nil {
			t.Error(err)
		}
	})
	if err := tree.Attach(group, os.Getpid()); err != nil {
		t.Fatal(err)
	}
	id, err := tree.Inode(group)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// TestTheProbeIsInTheKernelWhileAServiceNeedsIt measures a server of this process,
// changes its objective and takes it away.
func TestTheProbeIsInTheKernelWhileAServiceNeedsIt(t *testing.T) {
	tree, err := cgroup.Detect("/proc")
	if err != nil {
		t.Skipf("needs cgroups: %v", err)
	}
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			time.Sleep(40 * time.Millisecond)
		}
		fmt.Fprint(w, "done")
	}))
	defer web.Close()
	s := newSocketScene(t, want(web.Listener.Addr()).Port, openMeter)
	s.r.CgroupVersion = tree.Version()
	s.target.Cgroup = ownGroup(t, tree)
	s.r.Follow([]Target{s.target})
	first := s.fill(func(q node.Requests) bool { return !q.At.IsZero() || q.Trouble != "" })
	if first.Trouble != "" && os.Getuid() != 0 {
		t.Skipf("needs root: %s", first.Trouble)
	}
	if first.Trouble != "" {
		t.Fatalf("the first reading is %+v", first)
	}
	get := func(path string) {
		t.Helper()
		answer, err := http.Get(web.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
	}
	for range 20 {
		get("/")
	}
	get("/slow")
	over := func(q node.Requests) (total, over uint64) {
		for i, n := range q.Counts {
			if total += n; i > 0 && q.Bounds[i-1] >= 30*time.Millisecond {
				over += n
			}
		}
		return total, over
	}
	got := s.fill(func(q node.Requests) bool { n, _ := over(q); return n+q.Unsure >= 21 })
	if n, long := over(got); n > 21 || long == 0 {
		t.Errorf("%d requests, %d of them over the target, %d unsure; want 21 and 1", n, long, got.Unsure)
	}
	s.target.Want.Within[4] = 50 * time.Millisecond // the reader before may end later
	s.snapshot.Workloads[0].Objective.Requests = s.target.Want
	s.r.Follow([]Target{s.target})
	s.fill(func(q node.Requests) bool { return !q.At.IsZero() })
	get("/")
	s.fill(func(q node.Requests) bool { n, _ := over(q); return n == 1 })
	s.r.Follow(nil)
	s.r.running.Wait()
	if s.r.probe.meter != nil || s.r.probe.users != 0 {
		t.Errorf("the probe is loaded, with %d users, after its last service", s.r.probe.users)
	}
	if s.loads < 1 || s.loads > 2 {
		t.Errorf("the probe was loaded %d times", s.loads)
	}
}

// TestARefusedProbeIsNotLoadedAgainAtOnce reads a service on kernels that refuse the
// probe.
func TestARefusedProbeIsNotLoadedAgainAtOnce(t *testing.T) {
	for why, want := range map[error]node.SourceTrouble{
		fmt.Errorf("the function: %w", exchange.ErrUnsupported): node.TroubleNoHook,
		exchange.ErrFull:            node.TroubleTooMany,
		errors.New("not permitted"): node.TroubleProbe,
	} {
		s := newSocketScene(t, 80, func(exchange.Options) (meter, error) { return nil, why })
		s.r.Follow([]Target{s.target})
		got := s.fill(func(q node.Requests) bool { return q.Trouble != "" })
		time.Sleep(100 * time.Millisecond) // several readings
		s.r.Close()
		if got.Trouble != want || !got.At.IsZero() || s.loads != 1 {
			t.Errorf("%v: %+v after %d attempts, want %s after one", why, got, s.loads, want)
		}
	}
}
