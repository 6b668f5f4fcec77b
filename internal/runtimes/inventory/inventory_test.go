package inventory

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tenon.sh/tenon/internal/decide/match"
	"tenon.sh/tenon/internal/kernel/proc"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/runtimes/container"
)

const theSocket = "containerd:///run/c.sock"

// runtimes is a model of a machine with one container runtime. A test sets the containers.
type runtimes struct {
	*Follower
	said  bytes.Buffer // the log
	all   []container.Container
	err   error
	takes time.Duration
	asked []time.Duration // times of the requests since the start
	news  int
}

func newRuntimes(addresses ...string) *runtimes {
	r := &runtimes{}
	begun := time.Now()
	r.Follower = Follow(slog.New(slog.NewTextHandler(&r.said, nil)), proc.FS{}, func() { r.news++ })
	r.tell = func(ctx context.Context, address string) ([]container.Container, error) {
		if address != theSocket {
			return nil, fmt.Errorf("open %s: %w", address, container.ErrAbsent)
		}
		r.asked = append(r.asked, time.Since(begun))
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(r.takes):
			return slices.Clone(r.all), r.err
		}
	}
	r.Use([]match.Rule{{Name: "encoders", Class: node.BE, Containers: []string{"encode"}}}, addresses)
	return r
}

// runFor runs the Follower for the given time. Meanwhile it calls the function
// happens.
func (r *runtimes) runFor(t *testing.T, long time.Duration, happens func()) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), long)
	defer stop()
	go happens()
	r.Run(ctx)
}

func (r *runtimes) holds(paths ...string) bool {
	groups, _ := r.Groups([]string{"default", "default/encode", "default/other"})
	for _, path := range paths {
		if groups[path] == nil {
			return false
		}
	}
	return len(groups) == len(paths)
}

var encode = container.Container{ID: "encode", Name: "encode", Cgroup: "default/encode"}

func TestARuntimeThatIsDownLetsNothingLoose(t *testing.T) {
	for name, err := range map[string]error{
		"its socket is gone":   container.ErrAbsent,
		"it does not answer":   errors.New("connection refused"),
		"it hangs, at a start": nil,
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRuntimes(theSocket)
			if err == nil { // as if tenond started while the runtime hangs
				r.takes = time.Hour
				begun := time.Now()
				r.First(t.Context(), map[string][]container.Container{theSocket: {encode}})
				if took := time.Since(begun); took != firstWithin {
					t.Errorf("the first tick waited %v", took)
				}
			} else {
				r.all = []container.Container{encode}
				r.First(t.Context(), nil)
				r.all, r.err = nil, err
			}
			r.runFor(t, 100*time.Second, func() {})
			if !r.holds("default/encode") {
				t.Errorf("%s: the container is missing", name)
			}
			if n := strings.Count(r.said.String(), "level=WARN"); n == 0 || n > 1 && err != nil {
				t.Errorf("%s: %d warnings\n%s", name, n, r.said.String())
			}
			r.all, r.err, r.takes = []container.Container{}, nil, 0
			r.runFor(t, askAtLatest+time.Second, func() {})
			if r.holds("default/encode") || !strings.Contains(r.said.String(), "lists its containers again") {
				t.Errorf("%s: the runtime is back, but the container is missing\n%s", name, r.said.String())
			}
		})
	}
}

func TestAMissingRuntimeIsAskedEverMoreSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRuntimes(theSocket)
		r.all = []container.Container{encode}
		r.First(t.Context(), nil)
		r.err = container.ErrAbsent
		r.runFor(t, 100*time.Second, func() {})
		var want []time.Duration
		for _, s := range []int{0, 1, 2, 4, 8, 16, 32, 62, 92} {
			want = append(want, time.Duration(s)*time.Second)
		}
		if !slices.Equal(r.asked, want) {
			t.Errorf("asked at %v, want %v", r.asked, want)
		}
	})
}

func TestOnlyWhatCanBeAContainerHasTheRuntimesAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRuntimes(theSocket)
		r.First(t.Context(), nil)
		r.See([]string{"default"})
		r.runFor(t, 100*time.Second, func() {
			for i := range 50 {
				// podman.socket starts podman.service for a request, and the
				// service ends afterwards.
				r.See([]string{"default", "system.slice/podman.service"}[:1+i%2])
				time.Sleep(time.Second)
			}
		})
		if len(r.asked) != 2 {
			t.Errorf("asked at %v", r.asked)
		}
	})
}

func TestASwarmOfContainersIsListedSeldomAndToTheLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRuntimes(theSocket)
		r.First(t.Context(), nil)
		r.See([]string{"default"})
		r.takes = 100 * time.Millisecond
		const swarm = 60 * time.Second
		r.runFor(t, swarm+10*time.Second, func() {
			for i := range swarm / (10 * time.Millisecond) {
				r.See([]string{fmt.Sprintf("default/%d", i)})
				time.Sleep(10 * time.Millisecond)
			}
			r.all = []container.Container{encode}
			r.See([]string{"default/encode"})
		})
		for i := 2; i < len(r.asked); i++ {
			if apart := r.asked[i] - r.asked[i-1]; apart < (1+restFor)*r.takes {
				t.Errorf("asked again after %v", apart)
			}
		}
		if len(r.asked) < 20 || !r.holds("default/encode") {
			t.Errorf("asked at %v; the last container is known: %v", r.asked, r.holds("default/encode"))
		}
	})
}

func TestStoppingIsNoTroubleOfARuntime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRuntimes(theSocket)
		r.takes = time.Hour
		r.runFor(t, 3*time.Second, func() {})
		if r.said.Len() > 0 || r.misses() || r.Follower.asked {
			t.Errorf("it said %s", r.said.String())
		}
	})
}

func TestASocketThatTheConfigurationNamesIsMissed(t *testing.T) {
	for name, c := range map[string]struct {
		addresses []string
		want      []string
	}{
		"named":     {[]string{theSocket, "docker:///run/d.sock"}, []string{"containerSockets names docker:///run/d.sock, and there is no such socket"}},
		"no socket": {nil, []string{"rules name containers, and no runtime answers at " + strings.Join(container.Sockets, ", ")}},
	} {
		r := newRuntimes(c.addresses...)
		r.First(t.Context(), nil)
		if _, got := r.Groups(nil); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func TestTheCgroupOfAProcessIsToldWhileItLives(t *testing.T) {
	fs := proc.Default()
	entries, err := fs.SelfCgroup()
	if err != nil {
		t.Skip(err)
	}
	own := strings.Trim(proc.CPUPath(entries), "/")
	if path, known := groupOf(fs, os.Getpid()); !known || path != own {
		t.Errorf("got %q, %v; want %q", path, known, own)
	}
	if path, known := groupOf(fs, 1<<30); known {
		t.Errorf("no process has %q", path)
	}
}
