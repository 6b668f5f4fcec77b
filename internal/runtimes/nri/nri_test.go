package nri

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/nri/pkg/api"
)

func TestAContainerOfBatchWorkHasItsValuesWhenItIsMade(t *testing.T) {
	r := start(t, nil, nil)
	plug(t, Options{Socket: r.socket, Values: &tableValues{of: map[string]Limits{"ffmpeg/main": batchLimits()}}, Deadline: time.Minute})
	got := r.create(t, sandbox("ffmpeg"), besteffort("ffmpeg", "main"))
	if s := got.GetCpu().GetShares(); s != nil {
		t.Errorf("shares %v, want those of the kubelet", s)
	}
	if q, p := got.GetCpu().GetQuota().GetValue(), got.GetCpu().GetPeriod(); q != 100_000 || p != nil && p.GetValue() != 100_000 {
		t.Errorf("quota %d in %v, want 100000 in 100000", q, p)
	}
	if m := got.GetMemory().GetLimit().GetValue(); m != 1<<30 {
		t.Errorf("memory limit %d, want %d", m, 1<<30)
	}
	if u := got.GetUnified()["memory.high"]; u != "1000000000" {
		t.Errorf("memory.high %q, want 1000000000", u)
	}
	if got := r.create(t, sandbox("ffmpeg"), besteffort("ffmpeg", "sidecar")); got != nil {
		t.Errorf("a container that asks for nothing is changed: %v", got)
	}
}

func TestOnCgroupV1AContainerHasNoQuotaThatStandsInTheWayOfSuppress(t *testing.T) {
	r := start(t, nil, nil)
	plug(t, Options{Socket: r.socket, Values: &tableValues{of: map[string]Limits{"ffmpeg/main": batchLimits()}}, Deadline: time.Minute, V1: true})
	got := r.create(t, sandbox("ffmpeg"), besteffort("ffmpeg", "main"))
	if got.GetMemory().GetLimit().GetValue() != 1<<30 {
		t.Errorf("the memory limit is missing: %v", got)
	}
	if q, u := got.GetCpu().GetQuota(), keys(got.GetUnified()); q != nil || len(u) > 0 {
		t.Errorf("quota %v and files of cgroup v2 %v, want none", q, u)
	}
}

func TestANewPodIsAnnouncedBeforeItsContainers(t *testing.T) {
	r := start(t, nil, nil)
	values := &tableValues{started: make(chan Pod, 1)}
	plug(t, Options{Socket: r.socket, Values: values, Deadline: time.Minute})
	defer r.BlockPluginSync().Unblock()
	if err := r.RunPodSandbox(t.Context(), &api.RunPodSandboxRequest{Pod: sandbox("ffmpeg")}); err != nil {
		t.Fatal(err)
	}
	select {
	case p := <-values.started:
		if p.UID != "uid-ffmpeg" || p.String() != "default/ffmpeg" || p.CgroupParent != "/kubepods/besteffort/podffmpeg" {
			t.Errorf("announced as %+v", p)
		}
	default:
		t.Error("the pod may start before it was announced")
	}
}

// TestAContainerIsAnnouncedBeforeItStarts checks that the runtime does not
// start a container before the plugin has answered.
func TestAContainerIsAnnouncedBeforeItStarts(t *testing.T) {
	r := start(t, nil, nil)
	values := &tableValues{created: make(chan Created, 1)}
	plug(t, Options{Socket: r.socket, Values: values, Deadline: time.Minute})
	defer r.BlockPluginSync().Unblock()
	if err := r.StartContainer(t.Context(), &api.StartContainerRequest{Pod: sandbox("ffmpeg"), Container: besteffort("ffmpeg", "main")}); err != nil {
		t.Fatal(err)
	}
	select {
	case c := <-values.created:
		if c.Name != "main" || c.ID != "testing://ffmpeg-main" {
			t.Errorf("announced as %+v", c)
		}
	default:
		t.Error("the container may start before it was announced")
	}
}

// TestNoPodWaitsForTenon checks answers that never come, answers that are
// errors, and answers that panic. In each case, the runtime must create the
// container with the values of the kubelet.
func TestNoPodWaitsForTenon(t *testing.T) {
	never := make(chan struct{})
	defer close(never)
	for name, c := range map[string]struct {
		values *tableValues
		says   string
	}{
		"slow":   {&tableValues{hold: never}, "no answer within 20ms"},
		"wrong":  {&tableValues{err: errors.New("who is that?")}, "who is that?"},
		"broken": {&tableValues{panics: true}, "panic: cannot go on"},
	} {
		t.Run(name, func(t *testing.T) {
			log := &locked{}
			r := start(t, []*api.PodSandbox{sandbox("old")}, []*api.Container{besteffort("old", "main")})
			links := plug(t, Options{Socket: r.socket, Values: c.values, Deadline: 20 * time.Millisecond, StartDeadline: 20 * time.Millisecond, Log: slog.New(slog.NewTextHandler(log, nil))})
			for range 3 {
				if got := r.create(t, sandbox("ffmpeg"), besteffort("ffmpeg", "main")); got != nil {
					t.Errorf("changed: %v", got)
				}
				if err := r.RunPodSandbox(t.Context(), &api.RunPodSandboxRequest{Pod: sandbox("ffmpeg")}); err != nil {
					t.Error(err)
				}
				if err := r.StartContainer(t.Context(), &api.StartContainerRequest{Pod: sandbox("ffmpeg"), Container: besteffort("ffmpeg", "main")}); err != nil {
					t.Error(err)
				}
				if _, err := r.UpdateContainer(t.Context(), &api.UpdateContainerRequest{Pod: sandbox("ffmpeg"), Container: besteffort("ffmpeg", "main"), LinuxResources: &api.LinuxResources{}}); err != nil {
					t.Error(err)
				}
			}
			// The runtime drops a plugin that answers too late.
			for len(links) > 0 {
				if l := <-links; l.Runtime == "" {
					t.Errorf("the runtime dropped the plugin: %v", l.Err)
				}
			}
			if text := log.String(); !strings.Contains(text, c.says) {
				t.Errorf("the log does not contain %q:\n%s", c.says, text)
			}
		})
	}
}

// TestAStartWaitsLessThanTheRuntimeWaits sets a long deadline. The plugin must
// still answer before the runtime drops it.
func TestAStartWaitsLessThanTheRuntimeWaits(t *testing.T) {
	never := make(chan struct{})
	defer close(never)
	log := &locked{}
	r := start(t, nil, nil)
	plug(t, Options{Socket: r.socket, Values: &tableValues{hold: never}, StartDeadline: time.Minute, Log: slog.New(slog.NewTextHandler(log, nil))})
	defer r.BlockPluginSync().Unblock()
	if err := r.StartContainer(t.Context(), &api.StartContainerRequest{Pod: sandbox("ffmpeg"), Container: besteffort("ffmpeg", "main")}); err != nil {
		t.Error(err)
	}
	want := fmt.Sprint("no answer within ", api.DefaultPluginRequestTimeout*3/4)
	if text := log.String(); !strings.Contains(text, want) {
		t.Errorf("the log does not contain %q:\n%s", want, text)
	}
}

// TestAFloodOfUnansweredQuestionsIsBounded checks that only a limited number of
// requests can wait.
func TestAFloodOfUnansweredQuestionsIsBounded(t *testing.T) {
	never := make(chan struct{})
	defer close(never)
	p := newPlugin(Options{Values: &tableValues{hold: never}, Deadline: time.Nanosecond}.filled())
	for range maxWaiting + 10 {
		if a, _, err := p.CreateContainer(t.Context(), sandbox("ffmpeg"), besteffort("ffmpeg", "main")); a != nil || err != nil {
			t.Fatal(a, err)
		}
	}
	if n := len(p.slots); n != maxWaiting {
		t.Errorf("%d requests wait, want at most %d", n, maxWaiting)
	}
}

func TestWhatRunsAlreadyIsBroughtToItsValuesOnce(t *testing.T) {
	done := besteffort("done", "main")
	done.Linux.Resources = &api.LinuxResources{
		Cpu: &api.LinuxCPU{Shares: api.UInt64(uint64(2)), Quota: api.Int64(int64(100_000)), Period: api.UInt64(uint64(100_000))}, Memory: &api.LinuxMemory{Limit: api.Int64(int64(1 << 30))},
		Unified: map[string]string{"memory.high": "1000000000"},
	}
	r := start(t, []*api.PodSandbox{sandbox("ffmpeg"), sandbox("web"), sandbox("done")}, []*api.Container{besteffort("ffmpeg", "main"), besteffort("web", "main"), done, besteffort("unknown", "main")})
	plug(t, Options{Socket: r.socket, Values: &tableValues{of: map[string]Limits{"ffmpeg/main": batchLimits(), "done/main": batchLimits(), "unknown/main": batchLimits()}}, Deadline: time.Minute})
	r.BlockPluginSync().Unblock() // when the synchronization has ended
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.updates) != 1 || r.updates[0].GetContainerId() != "ffmpeg-main" || r.updates[0].GetLinux().GetResources().GetCpu().GetQuota().GetValue() != 100_000 {
		t.Errorf("updates %v, want that of ffmpeg alone", r.updates)
	}
}

// TestAnUnknownContainerDelaysNoOther checks many containers with unknown
// values. They must not delay containers with known values. When their values
// become known, the plugin must update them.
func TestAnUnknownContainerDelaysNoOther(t *testing.T) {
	var pods []*api.PodSandbox
	var has []*api.Container
	known := map[string]Limits{"z/main": batchLimits()}
	for i := range 20 {
		name := fmt.Sprint("unknown", i)
		pods, has = append(pods, sandbox(name)), append(has, besteffort(name, "main"))
		known[name+"/main"] = batchLimits()
	}
	r := start(t, append(pods, sandbox("z")), append(has, besteffort("z", "main")))
	values := &forgetfulValues{tableValues: tableValues{of: known}, told: make(chan struct{})}
	plug(t, Options{Socket: r.socket, Values: values, Deadline: 100 * time.Millisecond})
	r.BlockPluginSync().Unblock()
	r.mu.Lock()
	if len(r.updates) != 1 || r.updates[0].GetContainerId() != "z-main" {
		t.Errorf("updates %v, want that of z", r.updates)
	}
	r.mu.Unlock()
	close(values.told)
	for begun := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		r.mu.Lock()
		n := len(r.asked)
		r.mu.Unlock()
		if n == 20 {
			break
		}
		if n > 20 || time.Since(begun) > 30*time.Second {
			t.Fatalf("%d containers were updated once they were known, want 20", n)
		}
	}
}

// forgetfulValues is a Values. It returns values only for the container z,
// until a test releases the others.
type forgetfulValues struct {
	tableValues
	told chan struct{}
}

func (f *forgetfulValues) Container(ctx context.Context, p Pod, container string) (Limits, bool, error) {
	if p.Name != "z" {
		select {
		case <-f.told:
		case <-ctx.Done():
			return Limits{}, false, ctx.Err()
		}
	}
	return f.tableValues.Container(ctx, p, container)
}

func TestWhatTheKubeletWritesIsPutRightAndTheRestIsLeftAlone(t *testing.T) {
	r := start(t, nil, nil)
	plug(t, Options{Socket: r.socket, Values: &tableValues{of: map[string]Limits{"ffmpeg/main": batchLimits()}}, Deadline: time.Minute})
	update := func(asks *api.LinuxResources) *api.LinuxResources {
		defer r.BlockPluginSync().Unblock()
		rpl, err := r.UpdateContainer(t.Context(), &api.UpdateContainerRequest{Pod: sandbox("ffmpeg"), Container: besteffort("ffmpeg", "main"), LinuxResources: asks})
		if err != nil {
			t.Fatal(err)
		}
		for _, u := range rpl.GetUpdate() {
			if u.GetContainerId() == "ffmpeg-main" {
				return u.GetLinux().GetResources()
			}
		}
		return nil
	}
	if got := update(&api.LinuxResources{Cpu: &api.LinuxCPU{Quota: api.Int64(int64(-1))}}); got.GetCpu().GetQuota().GetValue() != 100_000 || got.GetMemory().GetLimit() != nil {
		t.Errorf("an update without a quota becomes %v, want the quota of Tenon only", got)
	}
	// The CPU manager changes the cpuset of the container.
	if got := update(&api.LinuxResources{Cpu: &api.LinuxCPU{Cpus: "1-3"}}); got != nil {
		t.Errorf("another cpuset is answered with %v, want nothing", got)
	}
}

func TestALostConnectionIsMadeAgain(t *testing.T) {
	r := start(t, nil, nil)
	w := wire(t, r.socket)
	links := plug(t, Options{Socket: w.socket, Values: &tableValues{of: map[string]Limits{"ffmpeg/main": batchLimits()}}, Deadline: time.Minute})
	if l := await(t, "link", links); l.Runtime != "testing v1" {
		t.Errorf("linked to %q", l.Runtime)
	}
	for range 2 {
		w.cut()
		if l := await(t, "loss", links); !errors.Is(l.Err, errLost) || l.Runtime != "" {
			t.Errorf("after the wire was cut: %+v", l)
		}
		if l := await(t, "next link", links); l.Runtime == "" {
			t.Errorf("after the wire was cut: %+v", l)
		}
		if got := r.create(t, sandbox("ffmpeg"), besteffort("ffmpeg", "main")); got.GetCpu().GetQuota().GetValue() != 100_000 {
			t.Errorf("on the next link: %v", got)
		}
	}
}

func TestWithoutNRIThePluginWaitsForItAndEndsWhenTold(t *testing.T) {
	links := make(chan Link, 100)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- Run(ctx, Options{Socket: t.TempDir() + "/none", Values: &tableValues{}, Changed: func(l Link) { links <- l }})
	}()
	if l := await(t, "reason", links); l.Err == nil || !strings.Contains(l.Err.Error(), "no such file or directory") {
		t.Errorf("%+v", l)
	}
	stop()
	if err := await(t, "end", ended); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if len(links) > 0 {
		t.Errorf("the same reason is reported again: %+v", <-links)
	}
}

func TestReleaseGivesTheKubeletsValuesBack(t *testing.T) {
	set := besteffort("ffmpeg", "main")
	set.Linux.Resources = &api.LinuxResources{Cpu: &api.LinuxCPU{Shares: api.UInt64(uint64(2)), Quota: api.Int64(int64(100_000)), Period: api.UInt64(uint64(100_000))}, Memory: &api.LinuxMemory{Limit: api.Int64(int64(1 << 30))}}
	r := start(t, []*api.PodSandbox{sandbox("ffmpeg"), sandbox("web"), sandbox("new")}, []*api.Container{set, besteffort("web", "main"), besteffort("new", "main")})
	o := Options{Socket: r.socket, Values: &tableValues{of: map[string]Limits{"ffmpeg/main": batchLimits(), "new/main": batchLimits()}}, Deadline: time.Minute}
	if err := Release(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.asked) != 2 || r.asked[0].GetContainerId() != "ffmpeg-main" {
		t.Fatalf("updates %v, want those of ffmpeg and new", r.asked)
	}
	got := r.asked[0].GetLinux().GetResources()
	if got.GetCpu().GetShares() != nil || got.GetCpu().GetQuota().GetValue() != -1 || got.GetMemory().GetLimit().GetValue() != -1 {
		t.Errorf("given back %v, want no quota and no limit", got)
	}
}

func TestReleaseSaysWhichContainersKeepTheirValues(t *testing.T) {
	set := besteffort("ffmpeg", "main")
	set.Linux.Resources.Cpu.Quota = api.Int64(int64(100_000))
	r := start(t, []*api.PodSandbox{sandbox("ffmpeg")}, []*api.Container{set})
	r.refuse = true
	err := Release(t.Context(), Options{Socket: r.socket, Values: &tableValues{of: map[string]Limits{"ffmpeg/main": batchLimits()}}, Deadline: time.Minute})
	if err == nil || !strings.Contains(err.Error(), "1 of 1 containers: ffmpeg-main") {
		t.Errorf("error %v", err)
	}
}

// TestAnEndingPluginReleasesOverItsOpenConnection checks that the plugin
// releases the containers over its open connection. It could not make another
// one, because the runtime accepts no new plugin while it stops the container
// of the plugin.
func TestAnEndingPluginReleasesOverItsOpenConnection(t *testing.T) {
	for name, leaves := range map[string]bool{"an uninstall": true, "an update": false} {
		t.Run(name, func(t *testing.T) {
			r := start(t, []*api.PodSandbox{sandbox("old")}, []*api.Container{besteffort("old", "main")})
			ctx, stop := context.WithCancel(t.Context())
			links, ended := make(chan Link, 10), make(chan error, 1)
			values := &tableValues{of: map[string]Limits{"ffmpeg/main": batchLimits(), "old/main": batchLimits(), "gone/main": batchLimits()}}
			go func() {
				ended <- Run(ctx, Options{Socket: r.socket, Values: values, Deadline: time.Minute, Changed: func(l Link) { links <- l }, Leaves: func() bool { return leaves }})
			}()
			await(t, "link", links)
			for _, pod := range []string{"ffmpeg", "gone"} {
				if got := r.create(t, sandbox(pod), besteffort(pod, "main")); got.GetMemory().GetLimit().GetValue() != 1<<30 {
					t.Fatalf("%s is made with %v", pod, got)
				}
			}
			blocked := r.BlockPluginSync()
			defer blocked.Unblock()
			if err := r.RemoveContainer(t.Context(), &api.RemoveContainerRequest{Pod: sandbox("gone"), Container: besteffort("gone", "main")}); err != nil {
				t.Fatal(err)
			}
			stop()
			want := context.Canceled
			var ids []string
			if leaves {
				want, ids = ErrReleased, []string{"ffmpeg-main", "old-main"}
			}
			if err := await(t, "end", ended); !errors.Is(err, want) {
				t.Errorf("ended with %v, want %v", err, want)
			}
			r.mu.Lock()
			defer r.mu.Unlock()
			var got []string
			for _, u := range r.asked {
				got = append(got, u.GetContainerId())
			}
			if !slices.Equal(got, ids) {
				t.Errorf("given back: %v, want %v", got, ids)
			}
		})
	}
}

func TestWhatWasNotKnownAtFirstIsGivenBackToo(t *testing.T) {
	r := start(t, []*api.PodSandbox{sandbox("old")}, []*api.Container{besteffort("old", "main")})
	ctx, stop := context.WithCancel(t.Context())
	links, ended := make(chan Link, 10), make(chan error, 1)
	values := &tableValues{of: map[string]Limits{"old/main": batchLimits()}, hold: make(chan struct{})}
	go func() {
		ended <- Run(ctx, Options{Socket: r.socket, Values: values, Deadline: 20 * time.Millisecond, Changed: func(l Link) { links <- l }, Leaves: func() bool { return true }})
	}()
	await(t, "link", links)
	r.BlockPluginSync().Unblock()
	if len(r.updates) > 0 {
		t.Fatalf("updates %v of unknown containers", r.updates)
	}
	close(values.hold)
	stop()
	if err := await(t, "end", ended); !errors.Is(err, ErrReleased) {
		t.Error(err)
	}
	// An earlier update may have set the values already.
	if n := len(r.asked); n == 0 || r.asked[n-1].GetContainerId() != "old-main" || r.asked[n-1].GetLinux().GetResources().GetCpu().GetQuota().GetValue() != -1 {
		t.Errorf("given back: %v", r.asked)
	}
}

// TestAPodThatIsLeftAloneGetsTheKubeletsValues ignores one of two pods after their
// containers were made. Only its container gets the kubelet's values, and only
// once.
func TestAPodThatIsLeftAloneGetsTheKubeletsValues(t *testing.T) {
	r := start(t, nil, nil)
	links := make(chan Link, 10)
	var alone atomic.Bool
	o := Options{Socket: r.socket, Values: &tableValues{of: map[string]Limits{"ffmpeg/main": batchLimits(), "web/main": batchLimits()}}, Deadline: 400 * time.Millisecond, Changed: func(l Link) { links <- l }}
	o.Ignores = func(uid string) bool { return alone.Load() && uid == sandbox("ffmpeg").GetUid() }
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, o) }()
	await(t, "link", links)
	for _, pod := range []string{"ffmpeg", "web"} {
		if got := r.create(t, sandbox(pod), besteffort(pod, "main")); got.GetMemory().GetLimit().GetValue() != 1<<30 {
			t.Fatalf("%s is made with %v", pod, got)
		}
	}
	alone.Store(true)
	for begun := time.Now(); r.countAsked() == 0; time.Sleep(10 * time.Millisecond) {
		if time.Since(begun) > 30*time.Second {
			t.Fatal("the container keeps the values of Tenon")
		}
	}
	time.Sleep(3 * syncDeadlines * o.Deadline / 2)
	stop()
	await(t, "end", ended)
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.asked) != 1 || r.asked[0].GetContainerId() != "ffmpeg-main" || r.asked[0].GetLinux().GetResources().GetMemory().GetLimit().GetValue() != -1 {
		t.Errorf("updates %v, want one that gives ffmpeg no limit", r.asked)
	}
}

// countAsked returns the number of updates for which the plugin has asked.
func (r *memoryRuntime) countAsked() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.asked)
}

// locked is a buffer to which several goroutines may write.
type locked struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *locked) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

func (l *locked) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// TestASilentRuntimeIsIgnoredUntilItRestarts checks that the plugin makes no
// more attempts to connect, because each attempt leaks a stub.
func TestASilentRuntimeIsIgnoredUntilItRestarts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "nri.sock")
	bind := func() {
		t.Helper()
		if err := errors.Join(os.RemoveAll(path), os.WriteFile(path, nil, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		for name, x := range map[string]struct {
			endless bool
			anew    time.Duration // time of the new socket; 0: never
			gone    bool
			want    time.Duration
		}{
			"a wait has an end":                        {false, 0, false, time.Minute},
			"a wait ends early with a new runtime":     {false, 12 * time.Second, false, 15 * time.Second},
			"one without end goes on":                  {true, 100 * time.Hour, false, 100 * time.Hour},
			"a socket that is only gone is no new one": {true, 0, true, -1},
		} {
			bind()
			socket, begun := socketAt(path), time.Now()
			ctx, stop := context.WithTimeout(t.Context(), 200*time.Hour)
			if x.gone {
				_ = os.Remove(path)
			}
			if x.anew > 0 {
				time.AfterFunc(x.anew, bind)
			}
			err := waitBeforeRetry(ctx, path, socket, time.Minute, x.endless)
			stop()
			if took := time.Since(begun); x.want < 0 && err == nil || x.want >= 0 && (err != nil || took < x.want || took > x.want+latest) {
				t.Errorf("%s: %v after %v", name, err, took)
			}
		}
	})
}
