package exchange

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// The tests of this file run the programs in the running kernel.

const ms = time.Millisecond

// isEmulated reports whether this is a guest of test/vm. Its CPUs may stop for
// milliseconds between two instructions, so that the times of the kernel and of a
// server differ. What is counted must be right there, too.
func isEmulated() bool { return os.Getenv("TENON_TEST_EMULATED") == "1" }

// A known is what a server says in an answer: how long it took, and the least and the
// most that the exchange before it took.
type known struct{ took, least, most time.Duration }

// ask sends a request of 8 bytes that asks for a delay.
func ask(c net.Conn, delay time.Duration) (known, error) {
	if _, err := c.Write(binary.LittleEndian.AppendUint64(nil, uint64(delay))); err != nil {
		return known{}, err
	}
	answer := make([]byte, answerSize)
	if _, err := io.ReadFull(c, answer); err != nil {
		return known{}, err
	}
	at := func(i int) time.Duration { return time.Duration(binary.LittleEndian.Uint64(answer[8*i:])) }
	return known{at(0), at(1), at(2)}, nil
}

// bucketOf returns the bucket of a duration.
func bucketOf(bounds []time.Duration, d time.Duration) int {
	i, _ := slices.BinarySearch(bounds, d)
	return i
}

// TestExchangesAreCountedInTheirBucket asks a server for delays from 50 µs to 50 ms,
// over IPv4 and IPv6, and compares each exchange with what the server says. No exchange
// may be outside of what is certain. Hardly any may be more than a bucket away from the
// server's own time, but for those of which the server is as vague: the machine has
// stopped it meanwhile, or is emulated. An exchange of which the kernel skipped a run of
// the programs is in no bucket, but is counted as missed, and the one after it is right.
func TestExchangesAreCountedInTheirBucket(t *testing.T) {
	s := newStage(t)
	p := s.open()
	const services, each = 8, 300
	path, id := s.Group("service")
	var listeners []socket
	var addresses []net.Addr
	var measured []*Service
	for i := range services {
		l, port := s.listen(i)
		listeners, addresses = append(listeners, l), append(addresses, l.Addr())
		measured = append(measured, s.track(p, id, port))
	}
	s.start("known", path, listeners...)
	var running sync.WaitGroup
	var away, vague, wrong atomic.Int64
	for i := range services {
		c := s.dial(addresses[i])
		running.Go(func() {
			before, err := measured[i].Read()
			last := -1                                 // the bucket of the exchange before
			for n := 0; n <= each && err == nil; n++ { // one more says what was certain of the last one
				delay := time.Duration(float64(50*time.Microsecond) * math.Pow(1000, rand.Float64()))
				var is known
				if is, err = ask(c, delay); err != nil {
					break
				}
				var after Reading
				if after, err = measured[i].Read(); err != nil {
					break
				}
				got := -1
				for bucket := range after.Counts {
					if after.Counts[bucket] != before.Counts[bucket] {
						got = bucket
					}
				}
				if n := total(after) - total(before); n > 1 {
					t.Errorf("%d exchanges after %d, %d unsure", total(after), total(before), after.Unsure())
				}
				slew := time.Microsecond + is.most/1000 // of the clock of the server against that of the kernel
				first, end := bucketOf(after.Bounds, is.least-slew), bucketOf(after.Bounds, is.most+slew)
				if n > 0 && end > first+1 {
					vague.Add(1)
				}
				if last >= 0 && (last < first || last > end) {
					wrong.Add(1)
					t.Errorf("an exchange of %v to %v is counted in bucket %d", is.least, is.most, last)
				}
				if want := bucketOf(after.Bounds, is.took); got >= 0 && (got < want-1 || got > want+1) {
					away.Add(1)
					t.Logf("%v is counted in bucket %d, want %d; %d exchanges after %d, %d unsure", is.took, got, want, total(after), total(before), after.Unsure())
				}
				before, last = after, got
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	running.Wait()
	if n := away.Load(); n > services*each/1000+vague.Load() {
		t.Errorf("%d of %d exchanges are more than a bucket away, and the server is vague about %d", n, services*each, vague.Load())
	}
	t.Logf("of %d exchanges, %d are outside of what is certain, %d more than a bucket away, %d vague; the hook is the %s", services*each, wrong.Load(), away.Load(), vague.Load(), p.Hook())
	skipped := uint64(0) // runs of the programs, also for data of others
	for name, program := range p.objects.Programs {
		stats, err := program.Stats()
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("the kernel skipped %d runs of %s", stats.RecursionMisses, name)
		skipped += stats.RecursionMisses
	}
	for _, m := range measured {
		r := s.read(m)
		if r.Overlapped+r.Unasked+r.Unseen > each/100 || r.Missed > skipped {
			t.Errorf("of %d exchanges, could not be told: %d overlapped, %d unasked, %d unseen, %d missed with %d runs skipped", each, r.Overlapped, r.Unasked, r.Unseen, r.Missed, skipped)
		}
		// A run that is skipped can cost two exchanges: its own, and the one that it hides.
		if n := total(r) + r.Unsure(); n > each+1 || n+skipped < each+1 {
			t.Errorf("%d exchanges and %d that could not be told, want %d, less at most %d whose runs are skipped", total(r), r.Unsure(), each+1, skipped)
		}
	}
}

// TestProtocolsThatAnswerOneAtATimeAreDecided sends requests by HTTP/1.1 with and
// without TLS. One in 50 takes longer than the target, and exactly these are
// counted.
func TestProtocolsThatAnswerOneAtATimeAreDecided(t *testing.T) {
	s := newStage(t)
	p := s.open()
	const requests, slow, target = 500, 10, 200 * ms
	late := uint64(requests / 100) // requests that the machine makes slow
	if isEmulated() {
		late *= 10
	}
	path, id := s.Group("web")
	plain, plainPort := s.listen(0)
	secure, securePort := s.listen(1)
	all := map[string]*Service{"http": s.track(p, id, plainPort, target), "https": s.track(p, id, securePort, target)}
	addresses := map[string]net.Addr{"http": plain.Addr(), "https": secure.Addr()}
	s.start("http", path, plain, secure)
	for scheme, service := range all {
		one := &http.Client{Timeout: time.Minute, Transport: &http.Transport{MaxConnsPerHost: 1, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
		for i := range requests {
			after := 0 * ms
			if i%(requests/slow) == 7 {
				after = target + 10*ms
			}
			get(t, one, fmt.Sprintf("%s://%s/?after=%v", scheme, addresses[scheme], after))
		}
		r := s.read(service)
		t.Logf("%s: %d exchanges, %d of them slow, unsure %d (%d overlapped, %d unasked)", scheme, total(r), over(r, target), r.Unsure(), r.Overlapped, r.Unasked)
		// The handshake of TLS is up to two exchanges more.
		if n := total(r); n < requests-requests/100 || n > requests+2 || r.Unsure() > requests/100 || over(r, target) < slow || over(r, target) > slow+late {
			t.Errorf("%s: %d exchanges, %d slow, %d unsure; want %d, %d and at most %d", scheme, n, over(r, target), r.Unsure(), requests, slow, requests/100)
		}
	}
}

func get(t *testing.T, c *http.Client, url string) {
	t.Helper()
	answer, err := c.Get(url)
	if err != nil {
		t.Error(err)
		return
	}
	defer answer.Body.Close()
	if text, err := io.ReadAll(answer.Body); err != nil || string(text) != "done" {
		t.Errorf("%s: %q, %v", url, text, err)
	}
}

// TestWhatOverlapsIsNotTold makes connections on which a time cannot be told, and
// wants that most of what happens there is counted as such.
func TestWhatOverlapsIsNotTold(t *testing.T) {
	s := newStage(t)
	p := s.open()
	path, id := s.Group("service")
	message := make([]byte, 8)
	for name, tc := range map[string]struct {
		role string
		do   func(t *testing.T, c net.Conn)
		want func(r Reading) bool
	}{
		"pipelined requests": {"in-turn", func(t *testing.T, c net.Conn) {
			binary.LittleEndian.PutUint64(message, uint64(3*ms))
			for range 20 {
				for range 4 {
					mustWrite(t, c, message)
					time.Sleep(ms / 10)
				}
				mustRead(t, c, 4*len(message))
			}
		}, func(r Reading) bool { return r.Unsure() >= 20 }},
		"an upload": {"after-all", func(t *testing.T, c net.Conn) {
			for range 10 {
				mustWrite(t, c, message)
				time.Sleep(2 * ms)
			}
			if err := c.(*net.TCPConn).CloseWrite(); err != nil {
				t.Error(err)
			}
			mustRead(t, c, 3)
		}, func(r Reading) bool { return r.Overlapped == 1 && total(r) == 0 }},
		"a request and the end of its stream": {"after-all", func(t *testing.T, c net.Conn) {
			mustWrite(t, c, message)
			time.Sleep(5 * ms)
			if err := c.(*net.TCPConn).CloseWrite(); err != nil {
				t.Error(err)
			}
			mustRead(t, c, 3)
		}, func(r Reading) bool { return r.Unsure() == 0 && total(r) == 1 && over(r, 4*ms) == 1 }},
		"a push": {"push", func(t *testing.T, c net.Conn) { mustRead(t, c, 40) }, func(r Reading) bool { return r.Unasked >= 10 && total(r) == 0 }},
		"events after a request": {"in-pieces", func(t *testing.T, c net.Conn) {
			mustWrite(t, c, message)
			mustRead(t, c, 10*len(message))
		}, func(r Reading) bool { return r.Unasked >= 8 && total(r) == 1 }},
	} {
		t.Run(name, func(t *testing.T) {
			l, port := s.listen(0)
			to := l.Addr()
			service := s.track(p, id, port)
			s.start(tc.role, path, l)
			tc.do(t, s.dial(to))
			if r := s.read(service); !tc.want(r) {
				t.Errorf("%d exchanges, %d overlapped, %d unasked, %d unseen", total(r), r.Overlapped, r.Unasked, r.Unseen)
			}
		})
	}
}

func mustWrite(t *testing.T, c net.Conn, message []byte) {
	t.Helper()
	if _, err := c.Write(message); err != nil {
		t.Error(err)
	}
}

func mustRead(t *testing.T, c net.Conn, bytes int) {
	t.Helper()
	if _, err := io.ReadFull(c, make([]byte, bytes)); err != nil {
		t.Error(err)
	}
}

// TestStreamsOfHTTP2AreNotTold sends requests on ten streams of a connection.
func TestStreamsOfHTTP2AreNotTold(t *testing.T) {
	s := newStage(t)
	p := s.open()
	path, id := s.Group("web")
	plain, port := s.listen(0)
	secure, _ := s.listen(0)
	to := plain.Addr()
	service := s.track(p, id, port)
	s.start("http", path, plain, secure)
	only := new(http.Protocols)
	only.SetUnencryptedHTTP2(true)
	one := &http.Client{Timeout: time.Minute, Transport: &http.Transport{Protocols: only, MaxConnsPerHost: 1}}
	get(t, one, fmt.Sprintf("http://%s/", to))
	var running sync.WaitGroup
	for range 10 {
		running.Go(func() {
			for range 30 {
				get(t, one, fmt.Sprintf("http://%s/?after=%dms", to, 1+rand.N(10)))
			}
		})
	}
	running.Wait()
	r := s.read(service)
	t.Logf("%d exchanges, %d overlapped, %d unasked", total(r), r.Overlapped, r.Unasked)
	if r.Unsure() < (total(r)+r.Unsure())/10 {
		t.Errorf("%d exchanges and %d that could not be told; want more of these", total(r), r.Unsure())
	}
}

// TestOtherSocketsAreNotSeen exchanges messages by UDP, at a tracked port, and by a
// UNIX socket.
func TestOtherSocketsAreNotSeen(t *testing.T) {
	s := newStage(t)
	p := s.open()
	path, id := s.Group("service")
	datagrams, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	local, err := net.Listen("unix", t.TempDir()+"/socket")
	if err != nil {
		t.Fatal(err)
	}
	local.(*net.UnixListener).SetUnlinkOnClose(false)
	service := s.track(p, id, datagrams.LocalAddr().(*net.UDPAddr).Port)
	addresses := []net.Addr{datagrams.LocalAddr(), local.Addr()}
	s.start("beside", path, datagrams.(*net.UDPConn), local.(*net.UnixListener))
	for _, to := range addresses {
		c := s.dial(to)
		for range 10 {
			mustWrite(t, c, make([]byte, 8))
			mustRead(t, c, 8)
		}
	}
	if r := s.read(service); total(r)+r.Unsure() != 0 {
		t.Errorf("%+v", r)
	}
}

// TestAServerWithIOUringIsMeasured exchanges messages with a server that receives and
// sends by io_uring.
func TestAServerWithIOUringIsMeasured(t *testing.T) {
	s := newStage(t)
	p := s.open()
	r, err := newRing()
	if err != nil {
		t.Logf("without io_uring: %v", err) // it may be switched off
		return
	}
	_ = unix.Close(r.fd)
	path, id := s.Group("service")
	l, port := s.listen(0)
	to := l.Addr()
	service := s.track(p, id, port)
	s.start("io_uring", path, l)
	c := s.dial(to)
	for range 50 {
		mustWrite(t, c, make([]byte, 8))
		mustRead(t, c, 8)
	}
	if r := s.read(service); total(r) != 50 || r.Unsure() != 0 {
		t.Errorf("%d exchanges, %d unsure; want 50", total(r), r.Unsure())
	}
}

// TestTheCgroupOfTheServerDecides tracks a port in other cgroups than that of its
// server, as if two pods had the network of their node, and then above it.
func TestTheCgroupOfTheServerDecides(t *testing.T) {
	s := newStage(t)
	p := s.open()
	_, strangeID := s.Group("strange")
	_, outerID := s.Group("outer")
	inner, innerID := s.Group("outer/inner")
	l, port := s.listen(0)
	to := l.Addr()
	strange := s.track(p, strangeID, port)
	s.start("known", inner, l)
	c := s.dial(to)
	exchange := func() {
		t.Helper()
		if _, err := ask(c, ms); err != nil {
			t.Fatal(err)
		}
	}
	exchange()
	outer := s.track(p, outerID, port)
	exchange()
	exchange()
	if r := s.read(outer); total(r) != 2 || r.Unsure() != 0 {
		t.Errorf("the cgroup above the server: %+v", r)
	}
	nearest := s.track(p, innerID, port)
	exchange()
	if r := s.read(outer); total(r)+r.Unsure() != 2 {
		t.Errorf("the cgroup above the nearest one: %+v", r)
	}
	if r := s.read(nearest); total(r)+r.Unsure() != 1 {
		t.Errorf("the nearest cgroup: %+v", r)
	}
	if err := nearest.Close(); err != nil {
		t.Fatal(err)
	}
	exchange()
	if r := s.read(outer); total(r)+r.Unsure() != 3 {
		t.Errorf("after the nearest one is gone: %+v", r)
	}
	if r := s.read(strange); total(r)+r.Unsure() != 0 {
		t.Errorf("another cgroup: %+v", r)
	}
}

// TestAProxyInThePodIsNotMeasured sends requests by a proxy in the cgroup of the service,
// such as the sidecar of a service mesh. Each request counts once, with the time of the
// service alone. If the port of the proxy is tracked, its time counts as well.
func TestAProxyInThePodIsNotMeasured(t *testing.T) {
	s := newStage(t)
	p := s.open()
	path, id := s.Group("pod")
	app, port := s.listen(0)
	proxy, front := s.listen(0)
	to := proxy.Addr()
	t.Setenv(targetVar, app.Addr().String())
	service, sidecar := s.track(p, id, port, 40*ms), s.track(p, id, front, 40*ms)
	s.start("known", path, app)
	s.start("proxy", path, proxy)
	c := s.dial(to)
	const all = 30
	for range all {
		if _, err := ask(c, ms); err != nil {
			t.Fatal(err)
		}
	}
	if r := s.read(service); total(r) != all || r.Unsure() != 0 || over(r, 40*ms) > all/2 {
		t.Errorf("the service: %d exchanges, %d unsure, %d longer than 40ms; want %d", total(r), r.Unsure(), over(r, 40*ms), all)
	}
	if r := s.read(sidecar); total(r) != all || r.Unsure() != 0 || over(r, 40*ms) != all {
		t.Errorf("the proxy: %d exchanges, %d unsure, %d longer than 40ms; want %d", total(r), r.Unsure(), over(r, 40*ms), all)
	}
}

// TestTimeWithoutTheProgramsIsNotCounted sends a request while nothing is measured,
// and waits for its answer while the port is.
func TestTimeWithoutTheProgramsIsNotCounted(t *testing.T) {
	s := newStage(t)
	p := s.open()
	path, id := s.Group("service")
	l, port := s.listen(0)
	to := l.Addr()
	service := s.track(p, id, port)
	s.start("known", path, l)
	c := s.dial(to)
	if _, err := ask(c, ms); err != nil {
		t.Fatal(err)
	}
	const wait = 3 * time.Second // longer than it takes to change the kernel's code
	message := binary.LittleEndian.AppendUint64(nil, uint64(wait))
	mustWrite(t, c, message)
	time.Sleep(20 * ms)
	if err := service.Close(); err != nil {
		t.Fatal(err)
	}
	service = s.track(p, id, port)
	mustRead(t, c, answerSize)
	if r := s.read(service); total(r) != 0 || r.Unasked != 1 {
		t.Errorf("%d exchanges, %d unasked; want one unasked", total(r), r.Unasked)
	}
	if _, err := ask(c, ms); err != nil {
		t.Fatal(err)
	}
	if r := s.read(service); total(r) != 1 || over(r, time.Second) != 0 {
		t.Errorf("%d exchanges, %d of them long", total(r), over(r, time.Second))
	}
}

// TestALaterServiceTakesOver tracks the same port twice and closes the first service
// after that.
func TestALaterServiceTakesOver(t *testing.T) {
	s := newStage(t)
	p := s.open()
	path, id := s.Group("service")
	l, port := s.listen(0)
	to := l.Addr()
	first := s.track(p, id, port)
	s.start("known", path, l)
	c := s.dial(to)
	second := s.track(p, id, port, 5*ms)
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := ask(c, ms); err != nil {
		t.Fatal(err)
	}
	if r := s.read(second); total(r) != 1 {
		t.Errorf("%+v", r)
	}
	if _, err := first.Read(); !errors.Is(err, ErrClosed) {
		t.Errorf("read the first one: %v", err)
	}
	if err := second.Close(); err != nil {
		t.Fatal(err)
	}
	if len(p.hooks) != 0 || len(p.services) != 0 || len(p.free) != Services {
		t.Errorf("%d hooks, %d services, %d free; want none but free ones", len(p.hooks), len(p.services), len(p.free))
	}
}

func TestAFullTableIsNamed(t *testing.T) {
	s := newStage(t)
	p := s.open()
	for i := range Services {
		s.track(p, uint64(1<<40+i), 80)
	}
	if _, err := p.Track(1, 80, Bounds()); !errors.Is(err, ErrFull) {
		t.Errorf("one more: %v", err)
	}
	for _, port := range []int{0, -1, 65536} {
		if _, err := p.Track(1, port, Bounds()); err == nil {
			t.Errorf("port %d is accepted", port)
		}
	}
	for _, bounds := range [][]time.Duration{nil, {2, 1}, {0}, make([]time.Duration, 200)} {
		if _, err := p.Track(1, 80, bounds); err == nil {
			t.Errorf("bounds %v are accepted", bounds)
		}
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Track(1, 80, Bounds()); !errors.Is(err, ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}

// TestAKilledProcessLeavesNothing kills a process that measures, and waits until the
// kernel has removed its programs.
func TestAKilledProcessLeavesNothing(t *testing.T) {
	s := newStage(t)
	s.open() // skips the test if the programs cannot be loaded
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/proc/self/exe")
	cmd.Env = append(os.Environ(), roleVar+"=hold 0")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var ids []ebpf.ProgramID
	for lines := bufio.NewScanner(out); lines.Scan() && lines.Text() != "holds"; {
		id, err := strconv.ParseUint(lines.Text(), 10, 32)
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, ebpf.ProgramID(id))
	}
	if len(ids) != 2 || slices.Contains(ids, 0) {
		t.Skipf("this kernel has no program ids: %v", ids)
	}
	if err := cmd.Process.Signal(unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	for _, id := range ids {
		for begin := time.Now(); isLoaded(id); time.Sleep(10 * ms) {
			if time.Since(begin) > 10*time.Second {
				t.Fatalf("program %d is still loaded", id)
			}
		}
	}
}

func isLoaded(id ebpf.ProgramID) bool {
	p, err := ebpf.NewProgramFromID(id)
	if err == nil {
		_ = p.Close()
	}
	return !errors.Is(err, os.ErrNotExist)
}

// TestTheHookIsTheExpectedOne names the hook on each kernel of test/vm.
func TestTheHookIsTheExpectedOne(t *testing.T) {
	p := newStage(t).open()
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		t.Fatal(err)
	}
	var major, minor int
	if _, err := fmt.Sscanf(unix.ByteSliceToString(name.Release[:]), "%d.%d", &major, &minor); err != nil {
		t.Fatal(err)
	}
	want := HookFunction
	if major > 6 || major == 6 && minor >= 16 {
		want = HookTracepoint
	}
	if p.Hook() != want {
		t.Errorf("Linux %d.%d: the hook is the %s, want the %s", major, minor, p.Hook(), want)
	}
}
