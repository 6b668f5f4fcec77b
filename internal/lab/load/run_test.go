package load

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"tenon.sh/tenon/internal/lab/load/fate"
	"tenon.sh/tenon/internal/model/unit"
)

// The load of these tests shares its CPUs with the server and with other tests.
// Therefore its threads sleep whenever possible, and the tests do not check
// short times.
const shared = -1 * time.Nanosecond

func TestOpenLoopShowsAStallThatClosedLoopHides(t *testing.T) {
	// This server does not answer for one sixth of the run.
	stalling := behaviour{stall: 200 * time.Millisecond, stallEvery: time.Second}
	c := Config{Duration: 1200 * time.Millisecond, Rate: 1000, Connections: 300, Spin: shared, Seed: 1}

	c.URL = newServer(t, stalling).url
	open, err := Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	c.URL, c.Connections = newServer(t, stalling).url, 2
	closed, err := Saturate(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}

	// On a busy machine, the client may not run for a part of the stall. Latency
	// leaves out the requests that were due then.
	const long, short = 120e3, 60e3 // µs
	all := open.WithStalls
	if all.P99 < long || all.Max < long {
		t.Errorf("open loop: P99 %.0f µs, max %.0f µs of a 200 ms stall: want at least %.0f", all.P99, all.Max, long)
	}
	if all.P90 < 30e3 {
		t.Errorf("open loop: P90 %.0f µs, though every sixth request met the stall, half of them for more than 100 ms", all.P90)
	}
	if closed.Latency.Max < long {
		t.Errorf("closed loop: max %.0f µs: the server did not stall", closed.Latency.Max)
	}
	if closed.Latency.P99 > short {
		t.Errorf("closed loop: P99 %.0f µs: want it to hide the stall (less than %.0f)", closed.Latency.P99, short)
	}
	t.Logf("open loop: P50 %.0f, P90 %.0f, P99 %.0f, max %.0f µs of %d", all.P50, all.P90, all.P99, all.Max, open.Completed)
	t.Logf("closed loop: P50 %.0f, P90 %.0f, P99 %.0f, max %.0f µs of %d", closed.Latency.P50, closed.Latency.P90, closed.Latency.P99, closed.Latency.Max, closed.Completed)
}

// TestAClientThatSharesItsCPUDoesNotHideAStall uses the server of
// TestOpenLoopShowsAStallThatClosedLoopHides and a client that polls, on a CPU
// that another process keeps busy. While such a client waits for answers, it gets
// half of the CPU, and leaves out most of the slow requests.
func TestAClientThatSharesItsCPUDoesNotHideAStall(t *testing.T) {
	own, err := ownCPUs()
	if err != nil {
		t.Fatal(err)
	}
	cpu := slices.Collect(own.All())[0]
	busy := exec.Command("sh", "-c", "i=0; while [ $i -lt 200000000 ]; do i=$((i+1)); done")
	if err := busy.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = busy.Process.Kill()
		_ = busy.Wait()
	})
	var set unix.CPUSet
	set.Set(int(cpu))
	if err := unix.SchedSetaffinity(busy.Process.Pid, &set); err != nil {
		t.Fatal(err)
	}
	s := newServer(t, behaviour{stall: 200 * time.Millisecond, stallEvery: time.Second})
	r, err := Run(t.Context(), Config{URL: s.url, CPUs: unit.CPUSetOf(cpu), Duration: 2 * time.Second, Rate: 500, Connections: 150, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	if r.WithStalls.P90 < 30e3 {
		t.Errorf("P90 of all requests %.0f µs, of a 200 ms stall that every fifth request met", r.WithStalls.P90)
	}
	if r.Latency.P90 < 30e3 && len(r.Void) == 0 {
		t.Errorf("P90 %.0f µs, though %d of %d requests of the stall are left out; void: %q", r.Latency.P90, r.SpoiledInDelay, r.DueInDelay, r.Void)
	}
	t.Logf("P90 %.0f, of all requests %.0f µs; %d of %d requests in the stall left out, %d of %d in all; void: %q", r.Latency.P90, r.WithStalls.P90, r.SpoiledInDelay, r.DueInDelay, r.Spoiled, r.Scheduled, r.Void)
}

func TestEveryScheduledRequestHasOneFate(t *testing.T) {
	for name, c := range map[string]struct {
		server behaviour
		config Config
		check  func(*Result) bool
		void   string
	}{
		"good": {check: func(r *Result) bool {
			return r.Completed == r.Scheduled && r.Errors == fate.Errors{} && r.Reconnects == 0
		}},
		"chunked": {server: behaviour{answer: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"},
			check: func(r *Result) bool { return r.Completed == r.Scheduled && r.Reconnects == 0 }},
		"announced close": {server: behaviour{answer: "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok"},
			check: func(r *Result) bool {
				return r.Completed == r.Scheduled && r.Errors == fate.Errors{} && r.Reconnects >= r.Completed
			}},
		"until close": {server: behaviour{answer: "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nok"},
			check: func(r *Result) bool { return r.Completed == r.Scheduled && r.Errors == fate.Errors{} }},
		"idle close": {server: behaviour{idleClose: 20 * time.Millisecond}, config: Config{Rate: 20},
			check: func(r *Result) bool { return r.Completed > 0 && r.Reconnects > 0 }},
		"errors of the service": {server: behaviour{answer: "HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n"},
			check: func(r *Result) bool { return r.Errors.Status == r.Scheduled }, void: "status errors: "},
		"hang-ups": {server: behaviour{hangUpAfter: 3},
			check: func(r *Result) bool { return r.Errors.Read > 0 && r.Completed > r.Errors.Read }, void: "read errors: "},
		"not HTTP": {server: behaviour{answer: "SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u3\r\n\r\n"},
			check: func(r *Result) bool { return r.Errors.Answer == r.Scheduled }, void: "answer errors: "},
		"silence": {server: behaviour{silent: true}, config: Config{Timeout: 50 * time.Millisecond},
			check: func(r *Result) bool { return r.Errors.Timeout > 0 && r.Completed == 0 }, void: "no request was answered"},
		"too few connections": {server: behaviour{delay: 20 * time.Millisecond}, config: Config{Connections: 2, Timeout: 200 * time.Millisecond},
			check: func(r *Result) bool {
				return r.WaitedForConnection > r.Sent/2 && r.Latency.P90 > 100e3 && r.Errors.Unsent > 0 && r.Errors.Timeout == 0
			}, void: "of the offered rate"},
	} {
		t.Run(name, func(t *testing.T) {
			c.config.URL, c.config.Duration, c.config.Spin = newServer(t, c.server).url, 200*time.Millisecond, shared
			if c.config.Rate == 0 {
				c.config.Rate = 500
			}
			if c.config.Connections == 0 {
				c.config.Connections = 20
			}
			r, err := Run(t.Context(), c.config)
			if err != nil {
				t.Fatal(err)
			}
			fates := r.Completed + r.Errors.Total() - r.Errors.Connect
			if !c.check(r) || fates != r.Scheduled || !strings.Contains(strings.Join(r.Void, "\n"), c.void) {
				t.Errorf("%+v, reconnects %d, void %q", r.Counts, r.Reconnects, r.Void)
			}
		})
	}
}

func TestAServiceThatDiesVoidsTheRun(t *testing.T) {
	s := newServer(t, behaviour{})
	time.AfterFunc(150*time.Millisecond, s.close)
	r, err := Run(t.Context(), Config{URL: s.url, Rate: 500, Duration: 300 * time.Millisecond, Connections: 8, Timeout: 100 * time.Millisecond, Spin: shared})
	if err != nil {
		t.Fatal(err)
	}
	if r.Errors.Connect == 0 || r.Errors.Unsent == 0 || len(r.Void) == 0 || len(r.Hints) == 0 {
		t.Errorf("%+v, void %q, %d hints", r.Counts, r.Void, len(r.Hints))
	}
}

func TestIPv6(t *testing.T) {
	listener, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		t.Skipf("no IPv6 here: %v", err)
	}
	s := newServerOn(t, behaviour{}, listener)
	if r, err := Run(t.Context(), Config{URL: s.url, Rate: 100, Duration: 100 * time.Millisecond, Connections: 2, Spin: shared}); err != nil || r.Completed == 0 {
		t.Errorf("error %v", err)
	}
}

func TestWarmupIsOnlyInTheIntervals(t *testing.T) {
	s := newServer(t, behaviour{})
	r, err := Run(t.Context(), Config{URL: s.url, Rate: 1000, Arrival: Constant, Warmup: 150 * time.Millisecond, Duration: 250 * time.Millisecond, Connections: 8, Spin: shared})
	if err != nil {
		t.Fatal(err)
	}
	if r.Warmup != 200*time.Millisecond || r.Length != 200*time.Millisecond || len(r.Intervals) != 4 {
		t.Errorf("warm-up %v, length %v, %d intervals", r.Warmup, r.Length, len(r.Intervals))
	}
	if r.Scheduled != 200 || r.LatencyHistogram.TotalCount() > r.Completed || r.LatencyHistogram.TotalCount() < r.Completed-r.Spoiled {
		t.Errorf("%d scheduled, %d completed, %d spoiled, %d in the histogram; want 200 less the spoiled", r.Scheduled, r.Completed, r.Spoiled, r.LatencyHistogram.TotalCount())
	}
	if err := r.Discard(0); err != nil || r.Scheduled != 400 {
		t.Errorf("all of it: %d scheduled, error %v; want 400", r.Scheduled, err)
	}
	if err := r.Discard(400 * time.Millisecond); err == nil {
		t.Error("discarded everything without an error")
	}
}

func TestOneThreadPerCPUSharesTheLoad(t *testing.T) {
	cpus, err := ownCPUs()
	if err != nil {
		t.Fatal(err)
	}
	s, procs := newServer(t, behaviour{}), runtime.GOMAXPROCS(0)
	r, err := Run(t.Context(), Config{URL: s.url, Rate: 1000, Arrival: Constant, Duration: 200 * time.Millisecond, Connections: 10, Spin: shared})
	if err != nil {
		t.Fatal(err)
	}
	if want := min(cpus.Len(), 10); r.CPUs.Len() != want || r.Scheduled < 199 || r.Scheduled > 201 {
		t.Errorf("%d CPUs, %d requests; want %d CPUs and 200 requests", r.CPUs.Len(), r.Scheduled, want)
	}
	if runtime.GOMAXPROCS(0) != procs {
		t.Errorf("GOMAXPROCS is %d after the run; want %d", runtime.GOMAXPROCS(0), procs)
	}
}

func TestResultTravelsAsJSON(t *testing.T) {
	s := newServer(t, behaviour{})
	r, err := Run(t.Context(), Config{URL: s.url, Rate: 500, Duration: 300 * time.Millisecond, Connections: 8, Spin: shared})
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var got Result
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	again, err := json.Marshal(&got)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(text), string(again)); diff != "" {
		t.Errorf("sent -, arrived +:\n%s", diff)
	}
	// The warm-up of the received result can still be changed.
	if err := got.Discard(100 * time.Millisecond); err != nil || got.Length != 200*time.Millisecond || got.Completed == 0 {
		t.Errorf("cut to %v with %d requests, error %v", got.Length, got.Completed, err)
	}
}

func TestSetupErrorsSayWhatToDo(t *testing.T) {
	s := newServer(t, behaviour{})
	s.close()
	good := Config{URL: s.url, Rate: 1, Duration: time.Second}
	for name, c := range map[string]struct {
		change func(*Config)
		want   string
	}{
		"nobody listens":  {func(*Config) {}, "is the service running"},
		"https":           {func(c *Config) { c.URL = "https://127.0.0.1/" }, "the load has no TLS: want http://"},
		"no scheme":       {func(c *Config) { c.URL = "127.0.0.1:8000" }, `url "127.0.0.1:8000" names no protocol: want http://`},
		"no host":         {func(c *Config) { c.URL = "http:///x" }, "want http://"},
		"no rate":         {func(c *Config) { c.Rate = 0 }, "rate 0"},
		"no duration":     {func(c *Config) { c.Duration = 0 }, "duration 0s"},
		"unknown arrival": {func(c *Config) { c.Arrival = "bursts" }, `arrival "bursts"`},
		"absent CPU":      {func(c *Config) { c.CPUs = unit.CPUSetOf(1023) }, "CPU 1023"},
		"endless":         {func(c *Config) { c.Rate, c.Duration = 1e6, time.Hour }, "want at most"},
	} {
		t.Run(name, func(t *testing.T) {
			config := good
			c.change(&config)
			if _, err := Run(t.Context(), config); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v; want one with %q", err, c.want)
			}
		})
	}
}

func TestCancellingEndsARun(t *testing.T) {
	s := newServer(t, behaviour{})
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	begin := time.Now()
	_, err := Run(ctx, Config{URL: s.url, Rate: 100, Duration: time.Hour, Connections: 2, Spin: shared})
	if !errors.Is(err, context.DeadlineExceeded) || time.Since(begin) > 20*time.Second {
		t.Errorf("error %v after %v", err, time.Since(begin))
	}
}
