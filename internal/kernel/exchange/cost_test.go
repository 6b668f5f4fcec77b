package exchange

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"tenon.sh/tenon/internal/kernel/task"
	"tenon.sh/tenon/internal/lab/stat"
	"tenon.sh/tenon/internal/model/unit"
)

// A turn of a mode is costSettle, in which the kernel changes its code and fills its
// caches, and costTurn, which counts. A block has costRounds rounds, and in each of
// them every mode has a turn, in random order.
const (
	costTurn   = 100 * time.Millisecond
	costSettle = 20 * time.Millisecond
	costRounds = 5
)

// BenchmarkCost measures what the programs cost per request of an echo server. The
// modes take turns within one connection of one process, because neighbouring tenths
// of a second agree far better than two processes. A request has four segments: the
// request and the answer, each of which is sent and arrives. Each iteration is a block:
//
//	go test -run '^$' -bench 'Cost$' -benchtime 20x ./internal/kernel/exchange
//
// The client and the server share one CPU, or each has one of its own. On one CPU they
// never wait for a CPU to wake up, so that the time of a request is the CPU time of
// both. On two, the state of a connection moves between the caches.
//
// In the mode empty, programs that do nothing are at the hooks. So empty less off is
// the price of the hooks, and tracked less empty that of the programs. off-again less
// off says what the benchmark can tell apart. A segment at a port of no service costs a
// quarter of what a request of other-port costs more than one of off.
func BenchmarkCost(b *testing.B) {
	cpus, err := task.Affinity(0)
	if err != nil {
		b.Fatal(err)
	}
	all := slices.Collect(cpus.All())
	last := all[len(all)-1]
	b.Run("one-cpu", func(b *testing.B) { switchback(b, last, last) })
	b.Run("two-cpus", func(b *testing.B) {
		if len(all) < 2 {
			b.Skip("needs two CPUs")
		}
		switchback(b, all[len(all)-2], last)
	})
}

// A costMode puts something at the hooks. end takes it away.
type costMode func(b *testing.B) (end func() error)

// costModes returns the modes. id is the cgroup of the server at a port, and otherID is
// another one.
func costModes(s stage, p *Probe, id, otherID uint64, port int) map[string]costMode {
	off := func(*testing.B) func() error { return func() error { return nil } }
	track := func(id uint64, port int) costMode {
		return func(*testing.B) func() error { return s.track(p, id, port).Close }
	}
	return map[string]costMode{
		"off": off, "off-again": off,
		"empty":        func(b *testing.B) func() error { return attachEmpty(b, p.Hook()) },
		"tracked":      track(id, port),
		"other-cgroup": track(otherID, port),
		"other-port":   track(id, 1),
	}
}

// A spent is what a request of a turn took: CPU time of the client and the server, and
// time.
type spent struct{ cpu, wall float64 }

// switchback measures the modes in turns. The server and the client each run on a CPU.
func switchback(b *testing.B, server, client unit.CPU) {
	s := newStage(b)
	p := s.open()
	path, id := s.Group("service")
	_, otherID := s.Group("other")
	l, port := s.listen(0)
	to := l.Addr()
	pid := s.start("echo-raw", path, l)
	fd := rawConnection(s, to)
	if !rawAsk(fd) { // after that, the thread that answers exists
		b.Fatal("the server does not answer")
	}
	pin(b, pid, server)
	runtime.LockOSThread() // never unlocked, so that this thread ends with the benchmark
	if err := task.SetAffinity(unix.Gettid(), unit.CPUSetOf(client)); err != nil {
		b.Fatal(err)
	}
	modes := costModes(s, p, id, otherID, port)
	names := slices.Sorted(maps.Keys(modes))
	taken := map[string]map[int][]spent{} // by mode and block
	for _, name := range names {
		taken[name] = map[int][]spent{}
	}
	rng := rand.New(rand.NewPCG(7, 7))
	for block := range b.N {
		for range costRounds {
			rng.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
			for _, name := range names {
				end := modes[name](b)
				takeTurn(b, fd, pid, costSettle)
				taken[name][block] = append(taken[name][block], takeTurn(b, fd, pid, costTurn))
				if err := end(); err != nil {
					b.Fatal(err)
				}
			}
		}
	}
	if b.N > 1 { // the first run only shows how long one takes
		b.Logf("%d blocks of %d rounds\n%s", b.N, costRounds, costTable(taken))
	}
}

// pin binds all threads of a process to a CPU.
func pin(b *testing.B, pid int, cpu unit.CPU) {
	b.Helper()
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		b.Fatal(err)
	}
	for _, thread := range threads {
		tid, err := strconv.Atoi(thread.Name())
		if err != nil {
			b.Fatal(err)
		}
		if err := task.SetAffinity(tid, unit.CPUSetOf(cpu)); err != nil && !errors.Is(err, task.ErrGone) {
			b.Fatal(err)
		}
	}
}

// takeTurn sends requests for a time, and returns what one of them took.
func takeTurn(b *testing.B, fd, pid int, d time.Duration) spent {
	b.Helper()
	begun, before := time.Now(), cpuTime(b, pid)+cpuTime(b, 0)
	n := 0
	for time.Since(begun) < d {
		for range 50 {
			if !rawAsk(fd) {
				b.Fatal("the server has gone")
			}
			n++
		}
	}
	return spent{
		cpu:  float64(cpuTime(b, pid)+cpuTime(b, 0)-before) / float64(n),
		wall: float64(time.Since(begun)) / float64(n),
	}
}

// cpuTime returns the CPU time of a process; 0: of this thread.
func cpuTime(b *testing.B, pid int) time.Duration {
	b.Helper()
	clock := int32(unix.CLOCK_THREAD_CPUTIME_ID)
	if pid != 0 {
		clock = int32(^pid<<3 | 2) // the clock of a process, as clock_getcpuclockid(3) makes it
	}
	var t unix.Timespec
	if err := unix.ClockGettime(clock, &t); err != nil {
		b.Fatal(err)
	}
	return time.Duration(t.Nano())
}

// rawConnection connects to a server until the benchmark ends. Its file descriptor
// blocks, because the poller of Go would use CPU time of its own.
func rawConnection(s stage, to net.Addr) int {
	s.Helper()
	f, err := s.dial(to).(*net.TCPConn).File()
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = f.Close() })
	fd := int(f.Fd())
	if err := unix.SetNonblock(fd, false); err != nil {
		s.Fatal(err)
	}
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 30}); err != nil {
		s.Fatal(err)
	}
	return fd
}

// BenchmarkProgram measures how long each run of the programs takes, by the kernel's
// statistics. Compare with the mode empty, because the statistics take time, too. The
// client and the server are on this machine, so of two runs one is for the service.
func BenchmarkProgram(b *testing.B) {
	s := newStage(b)
	p := s.open()
	path, id := s.Group("service")
	_, otherID := s.Group("other")
	l, port := s.listen(0)
	to := l.Addr()
	s.start("echo", path, l)
	c := s.dial(to)
	if err := c.SetDeadline(time.Time{}); err != nil {
		b.Fatal(err)
	}
	counting, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
	if err != nil {
		b.Skip(err)
	}
	defer counting.Close()
	b.Run("empty", func(b *testing.B) { emptyRuns(b, c) })
	for name, mode := range map[string]func(b *testing.B) *Service{
		"tracked":      func(*testing.B) *Service { return s.track(p, id, port) },
		"other-cgroup": func(*testing.B) *Service { return s.track(p, otherID, port) },
		"other-port":   func(*testing.B) *Service { return s.track(p, id, 1) },
	} {
		b.Run(name, func(b *testing.B) {
			service := mode(b)
			before := runs(b, p)
			rounds(b, c, b.N)
			for name, now := range runs(b, p) {
				n := now.RunCount - before[name].RunCount
				b.ReportMetric(float64(now.Runtime-before[name].Runtime)/float64(max(n, 1)), "ns/"+name)
				b.ReportMetric(float64(n)/float64(b.N), name+"/op")
			}
			if err := service.Close(); err != nil {
				b.Fatal(err)
			}
		})
	}
}

// emptyRuns measures a program at the first hook that does nothing: what the
// statistics and the call of any program cost.
func emptyRuns(b *testing.B, c net.Conn) {
	program, hook := emptyAt(b, ebpf.AttachTraceRawTp, "tcp_probe")
	defer program.Close()
	defer hook.Close()
	rounds(b, c, b.N)
	now, err := program.Stats()
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(now.Runtime)/float64(max(now.RunCount, 1)), "ns/empty")
}

// attachEmpty attaches a program that does nothing at each of the two hooks, in the
// way in which the probe attaches its own.
func attachEmpty(b *testing.B, sent Hook) (end func() error) {
	b.Helper()
	hooks := map[string]ebpf.AttachType{"tcp_probe": ebpf.AttachTraceRawTp, "tcp_sendmsg_locked": ebpf.AttachTraceRawTp}
	if sent == HookFunction {
		hooks["tcp_sendmsg_locked"] = ebpf.AttachTraceFEntry
	}
	var opened []io.Closer
	for to, kind := range hooks {
		program, hook := emptyAt(b, kind, to)
		opened = append(opened, hook, program)
	}
	return func() error {
		for _, one := range opened {
			if err := one.Close(); err != nil {
				return err
			}
		}
		return nil
	}
}

// emptyAt attaches a program that does nothing.
func emptyAt(b *testing.B, kind ebpf.AttachType, to string) (*ebpf.Program, link.Link) {
	b.Helper()
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.Tracing, AttachType: kind, AttachTo: to, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
	})
	if err != nil {
		b.Fatal(err)
	}
	hook, err := link.AttachTracing(link.TracingOptions{Program: program})
	if err != nil {
		b.Fatal(err)
	}
	return program, hook
}

// runs returns the statistics of the programs.
func runs(b *testing.B, p *Probe) map[string]*ebpf.ProgramStats {
	b.Helper()
	all := map[string]*ebpf.ProgramStats{}
	for name, program := range p.objects.Programs {
		now, err := program.Stats()
		if err != nil {
			b.Fatal(err)
		}
		all[name] = now
	}
	return all
}

// costTable compares each mode with the mode off, round by round, and tracked with
// empty.
func costTable(taken map[string]map[int][]spent) string {
	var table strings.Builder
	fmt.Fprintf(&table, "%-22s %10s   %-28s %10s   %s\n", "mode", "CPU ns", "more (95 %)", "ns", "more (95 %)")
	line := func(title, mode, than string) {
		fmt.Fprintf(&table, "%-22s", title)
		for _, of := range []func(spent) float64{func(x spent) float64 { return x.cpu }, func(x spent) float64 { return x.wall }} {
			now, base := perRound(taken[mode], of), perRound(taken[than], of)
			e := stat.EffectOf(logRatios(now, base), 0.025)
			more := func(ratio stat.Number) float64 { return (float64(ratio) - 1) * medianOf(base) }
			fmt.Fprintf(&table, " %10.0f   %-28s", medianOf(now), fmt.Sprintf("%+.0f (%+.0f to %+.0f)", more(e.Ratio), more(e.Lower), more(e.Upper)))
		}
		table.WriteByte('\n')
	}
	for _, mode := range slices.Sorted(maps.Keys(taken)) {
		line(mode, mode, "off")
	}
	line("tracked less empty", "tracked", "empty")
	return table.String()
}

// perRound returns one of the numbers of each turn, by block and round.
func perRound(turns map[int][]spent, of func(spent) float64) map[int][]float64 {
	all := map[int][]float64{}
	for block, rounds := range turns {
		for _, x := range rounds {
			all[block] = append(all[block], of(x))
		}
	}
	return all
}

func logRatios(a, b map[int][]float64) stat.Rounds {
	logs := stat.Rounds{}
	for block := range a {
		for i, x := range a[block] {
			logs[block] = append(logs[block], math.Log(x/b[block][i]))
		}
	}
	return logs
}

func medianOf(rounds map[int][]float64) float64 {
	var all []float64
	for _, some := range rounds {
		all = append(all, some...)
	}
	slices.Sort(all)
	return all[len(all)/2]
}

func rounds(b *testing.B, c net.Conn, n int) {
	b.Helper()
	message := make([]byte, 8)
	for range n {
		if _, err := c.Write(message); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(c, message); err != nil {
			b.Fatal(err)
		}
	}
}
