package kubelet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func podNamed(name string) corev1.Pod { return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}} }

// A fakeKubelet is a kubelet whose answers a test sets.
type fakeKubelet struct {
	mu    sync.Mutex
	names []string
	err   error
	asked int
}

func (f *fakeKubelet) set(err error, names ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err, f.names = err, names
}

func (f *fakeKubelet) Pods(context.Context) ([]corev1.Pod, bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked++
	if f.err != nil {
		return nil, false, f.err
	}
	var pods []corev1.Pod
	for _, n := range f.names {
		pods = append(pods, podNamed(n))
	}
	return pods, false, nil
}

func (f *fakeKubelet) Facts(context.Context) (Facts, error) {
	return Facts{CgroupDriver: "cgroupfs"}, nil
}
func (*fakeKubelet) Files() (Files, error) { return Files{}, nil }

// A fakeStandIn replaces the kubelet in these tests.
type fakeStandIn struct {
	runs atomic.Int32
	err  atomic.Pointer[error]
	pod  string
}

func (s *fakeStandIn) Run(ctx context.Context) {
	s.runs.Add(1)
	<-ctx.Done()
	s.runs.Add(-1)
}

func (s *fakeStandIn) Objects() ([]*corev1.Pod, bool) {
	pod := podNamed(s.pod)
	return []*corev1.Pod{&pod}, s.err.Load() == nil
}

func (s *fakeStandIn) Trouble() (time.Time, error) {
	if err := s.err.Load(); err != nil {
		return time.Time{}, *err
	}
	return time.Now(), nil
}

// watch runs a source until the end of the test.
func watch(t *testing.T, k Kubelet, other *fakeStandIn, every time.Duration) (*Source, func() int32) {
	t.Helper()
	var changes atomic.Int32
	var standIn func(func()) StandIn
	if other != nil {
		standIn = func(func()) StandIn { return other }
	}
	s := NewSource(k, standIn, every, slog.New(slog.DiscardHandler), func() { changes.Add(1) })
	ctx, stop := context.WithCancel(context.Background())
	over := start(s, ctx)
	t.Cleanup(func() { stop(); <-over })
	return s, changes.Load
}

func start(s *Source, ctx context.Context) chan struct{} {
	over := make(chan struct{})
	go func() { defer close(over); s.Run(ctx) }()
	return over
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("not within 10 s: " + what)
		}
	}
}

func names(k Known) string {
	text := ""
	for _, p := range k.Pods {
		text += p.Name + " "
	}
	return text
}

func TestACgroupThatComesHasTheKubeletAsked(t *testing.T) {
	k := &fakeKubelet{names: []string{"a"}}
	s, _ := watch(t, k, nil, time.Hour)
	eventually(t, "the first answer", func() bool { return names(s.Known()) == "a " })
	k.set(nil, "a", "b")
	s.Look()
	eventually(t, "the new pod", func() bool { return names(s.Known()) == "a b " })
	if f := s.Known().Facts; f.CgroupDriver != "cgroupfs" {
		t.Errorf("facts %+v", f)
	}
}

func TestWhatWasKnownHoldsWhileTheKubeletIsSilent(t *testing.T) {
	k := &fakeKubelet{names: []string{"a"}}
	s, changes := watch(t, k, nil, 50*time.Millisecond)
	eventually(t, "the first answer", func() bool { return names(s.Known()) == "a " })
	k.set(errors.New("connection refused"))
	eventually(t, "the trouble", func() bool { return s.Known().Trouble != "" })
	at := s.Known().At
	if got := s.Known(); names(got) != "a " || got.From != "kubelet" {
		t.Errorf("%+v", got)
	}
	before := changes()
	k.set(nil, "a", "b")
	eventually(t, "the kubelet again", func() bool { return s.Known().Trouble == "" && names(s.Known()) == "a b " })
	if !s.Known().At.After(at) || changes() == before {
		t.Error("changed was not called")
	}
}

func TestTheAPIServerStandsInForAKubeletThatRefuses(t *testing.T) {
	k := &fakeKubelet{names: []string{"a"}}
	other := &fakeStandIn{pod: "from-the-server"}
	s, _ := watch(t, k, other, 50*time.Millisecond)
	eventually(t, "the first answer", func() bool { return names(s.Known()) == "a " })
	if other.runs.Load() != 0 {
		t.Error("the API server is watched though the kubelet answers")
	}
	k.set(fmt.Errorf("%w: 403", ErrRefused))
	eventually(t, "the API server's pods", func() bool {
		got := s.Known()
		return names(got) == "from-the-server " && got.From == "API server" && got.Trouble == ""
	})
	lost := errors.New("no route to host")
	other.err.Store(&lost)
	s.Look()
	eventually(t, "the trouble of both", func() bool { return s.Known().Trouble != "" })
	if names(s.Known()) != "from-the-server " {
		t.Error("without any answer, the known pods are dropped")
	}
	k.set(nil, "b")
	eventually(t, "the kubelet again", func() bool { return names(s.Known()) == "b " && s.Known().From == "kubelet" && s.Known().Trouble == "" })
	eventually(t, "the end of the watch", func() bool { return other.runs.Load() == 0 })
}

func TestANodeThatNeverHeardOfPodsSaysSo(t *testing.T) {
	k := &fakeKubelet{err: errors.New("connection refused")}
	lost := errors.New("no route to host")
	other := &fakeStandIn{}
	other.err.Store(&lost)
	s, _ := watch(t, k, other, time.Hour)
	eventually(t, "the trouble", func() bool { return s.Known().Trouble != "" })
	if !s.Known().At.IsZero() {
		t.Error("pods are reported without any answer")
	}
}

// A muteKubelet is a kubelet that lists its pods but refuses to give its
// configuration.
type muteKubelet struct {
	fakeKubelet
	err error
}

func (m *muteKubelet) Facts(context.Context) (Facts, error) { return Facts{}, m.err }

func TestAConfigurationThatWasNotToldIsAskedForSoon(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		wait time.Duration
	}{
		"a kubelet that starts":  {errors.New("connection refused"), factsAgain},
		"a kubelet that refuses": {ErrRefused, factsEvery},
	} {
		s := NewSource(&muteKubelet{err: c.err}, nil, time.Hour, slog.New(slog.DiscardHandler), func() {})
		now := time.Now()
		s.learn(context.Background(), now)
		if next := s.facts.Add(factsEvery).Sub(now); next != c.wait {
			t.Errorf("%s is asked again after %v, want %v", name, next, c.wait)
		}
	}
}

// requestTimes records the time of each request.
type requestTimes struct {
	mu    sync.Mutex
	begun time.Time
	at    []time.Duration
}

func (a *requestTimes) Pods(context.Context) ([]corev1.Pod, bool, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.at = append(a.at, time.Since(a.begun))
	return nil, false, nil
}

func (a *requestTimes) Facts(context.Context) (Facts, error) {
	return Facts{CgroupDriver: "cgroupfs"}, nil
}
func (*requestTimes) Files() (Files, error) { return Files{}, nil }

// TestHurryCausesARequestSoon checks that Hurry causes a request soon, even
// just after another request. The container runtime waits only a fraction of a
// second.
func TestHurryCausesARequestSoon(t *testing.T) {
	for name, x := range map[string]struct {
		when  time.Duration
		ask   func(*Source)
		asked []time.Duration
	}{
		"Look just after a request":  {10 * time.Millisecond, (*Source).Look, []time.Duration{0, minRest}},
		"Hurry just after a request": {10 * time.Millisecond, (*Source).Hurry, []time.Duration{0, hurriedRest}},
		"Hurry a little later":       {200 * time.Millisecond, (*Source).Hurry, []time.Duration{0, 200 * time.Millisecond}},
		"Hurry much later":           {900 * time.Millisecond, (*Source).Hurry, []time.Duration{0, 900 * time.Millisecond}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := &requestTimes{begun: time.Now()}
				s := NewSource(k, nil, time.Minute, slog.New(slog.DiscardHandler), func() {})
				ctx, stop := context.WithCancel(t.Context())
				over := start(s, ctx)
				time.Sleep(x.when)
				x.ask(s)
				time.Sleep(time.Second)
				stop()
				<-over
				if !slices.Equal(k.at, x.asked) {
					t.Errorf("asked at %v, want %v", k.at, x.asked)
				}
			})
		})
	}
}
