package exchange

import (
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
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

	"tenon.sh/tenon/internal/decide/trials/paired"
	"tenon.sh/tenon/internal/kernel/proc"
	"tenon.sh/tenon/internal/lab/stat"
)

// costRounds is the number of requests of one run: about 0.5 s.
const costRounds = 20_000

// BenchmarkCost measures what the programs cost per request of an echo server, in
// CPU time of its process and of the client. A request has four segments: the
// request and the answer, each of which is sent and arrives. Each iteration is a
// block that runs all modes once, in random order:
//
//	go test -run '^$' -bench Cost -benchtime 20x ./internal/kernel/exchange
func BenchmarkCost(b *testing.B) {
	s := newStage(b)
	p := s.open()
	path, id := s.Group("service")
	_, otherID := s.Group("other")
	l, port := s.listen(0)
	to := l.Addr()
	pid := s.start("echo", path, l)
	c := s.dial(to)
	if err := c.SetDeadline(time.Time{}); err != nil {
		b.Fatal(err)
	}
	nothing := func() *Service { return nil }
	modes := map[string]func() *Service{
		"off": nothing, "off-again": nothing,
		"tracked":      func() *Service { return s.track(p, id, port) },
		"other-cgroup": func() *Service { return s.track(p, otherID, port) },
		"other-port":   func() *Service { return s.track(p, id, 1) },
	}
	names := slices.Sorted(maps.Keys(modes))
	samples := map[string]stat.Sample{}
	for _, name := range names {
		samples[name] = stat.Sample{}
	}
	rng := rand.New(rand.NewPCG(7, 7))
	runtime.LockOSThread() // so that one thread has all CPU time of the client
	defer runtime.UnlockOSThread()
	for block := range b.N {
		rng.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
		for _, name := range names {
			service := modes[name]()
			rounds(b, c, costRounds/10) // warm-up
			before := cpuTime(b, pid) + cpuTime(b, os.Getpid())
			rounds(b, c, costRounds)
			samples[name][block] = float64(cpuTime(b, pid)+cpuTime(b, os.Getpid())-before) / costRounds
			if service != nil {
				if err := service.Close(); err != nil {
					b.Fatal(err)
				}
			}
		}
	}
	if b.N > 1 { // the first run only shows how long one takes
		b.Logf("%d blocks\n%s", b.N, costTable(samples))
	}
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
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.Tracing, AttachType: ebpf.AttachTraceRawTp, AttachTo: "tcp_probe", License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
	})
	if err != nil {
		b.Fatal(err)
	}
	defer program.Close()
	hook, err := link.AttachTracing(link.TracingOptions{Program: program})
	if err != nil {
		b.Fatal(err)
	}
	defer hook.Close()
	rounds(b, c, b.N)
	now, err := program.Stats()
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(now.Runtime)/float64(max(now.RunCount, 1)), "ns/empty")
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

// costTable compares each mode with the mode off, block by block.
func costTable(samples map[string]stat.Sample) string {
	var table strings.Builder
	fmt.Fprintf(&table, "%-12s %10s   %s\n", "mode", "ns/request", "more than off (95 %)")
	for _, name := range slices.Sorted(maps.Keys(samples)) {
		d := stat.Difference(samples[name], samples["off"], paired.Rule{})
		fmt.Fprintf(&table, "%-12s %10.0f %+8.0f (%+.0f to %+.0f)\n", name, stat.Median(samples[name]), d.Value, d.Low, d.High)
	}
	return table.String()
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

// cpuTime adds up the CPU time of the threads of a process.
func cpuTime(b *testing.B, pid int) (sum time.Duration) {
	b.Helper()
	threads, err := os.ReadDir(filepath.Join("/proc", strconv.Itoa(pid), "task"))
	if err != nil {
		b.Fatal(err)
	}
	for _, thread := range threads {
		tid, err := strconv.Atoi(thread.Name())
		if err != nil {
			b.Fatal(err)
		}
		if one, err := proc.Default().SchedStat(pid, tid); err == nil { // else the thread has ended
			sum += one.Run
		}
	}
	return sum
}
