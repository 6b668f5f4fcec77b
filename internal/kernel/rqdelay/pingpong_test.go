package rqdelay

import (
	"bufio"
	"fmt"
	"io"
	"log"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"tenon.sh/tenon/internal/kernel/task"
	"tenon.sh/tenon/internal/model/unit"
	"tenon.sh/tenon/test/kerneltest"
)

// pingpongCPUVar is an environment variable. It has the CPU on which a process
// in the role pingpong runs.
const pingpongCPUVar = "TENON_PROBE_TEST_CPU"

// pingpong passes a byte back and forth between two threads on one CPU. It
// reads numbers of rounds. For each of them, it prints the elapsed nanoseconds,
// the CPU time of the process in nanoseconds, and its context switches. It uses
// raw system calls, so that a blocking read blocks the thread.
func pingpong() {
	debug.SetGCPercent(-1)
	cpu, err := strconv.Atoi(os.Getenv(pingpongCPUVar))
	if err != nil {
		log.Fatal(err)
	}
	bind := func() {
		runtime.LockOSThread()
		if err := task.SetAffinity(0, unit.CPUSetOf(unit.CPU(cpu))); err != nil {
			log.Fatal(err)
		}
	}
	var there, back [2]int
	if err := syscall.Pipe(there[:]); err != nil {
		log.Fatal(err)
	}
	if err := syscall.Pipe(back[:]); err != nil {
		log.Fatal(err)
	}
	go func() {
		bind()
		for {
			pass(syscall.SYS_READ, there[0])
			pass(syscall.SYS_WRITE, back[1])
		}
	}()
	bind()
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		rounds, err := strconv.Atoi(in.Text())
		if err != nil {
			log.Fatal(err)
		}
		switches, cpuTime, begin := ownSwitches(), processTime(), time.Now()
		for range rounds {
			pass(syscall.SYS_WRITE, there[1])
			pass(syscall.SYS_READ, back[0])
		}
		fmt.Println(time.Since(begin).Nanoseconds(), (processTime() - cpuTime).Nanoseconds(), ownSwitches()-switches)
	}
	os.Exit(0)
}

// ownSwitches returns the number of context switches of this process.
func ownSwitches() int64 {
	var r syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &r)
	return r.Nvcsw + r.Nivcsw
}

// processTime returns the CPU time of this process.
func processTime() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &t)
	return time.Duration(t.Nano())
}

// pass reads or writes one byte of a pipe with a raw system call.
func pass(call uintptr, fd int) {
	var b [1]byte
	for {
		n, _, errno := syscall.RawSyscall(call, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), 1)
		switch {
		case n == 1:
			return
		case errno != syscall.EINTR:
			log.Fatal(errno)
		}
	}
}

// A pinger is a process in the role pingpong.
type pinger struct {
	testing.TB
	in  io.Writer
	out *bufio.Reader
}

func startPingpong(s stage) pinger {
	s.Helper()
	last := unit.CPU(0)
	for c := range s.cpus.All() {
		last = c
	}
	cmd := kerneltest.Command(roleVar, "pingpong")
	// Each of the two threads needs its own processor of the Go scheduler,
	// because it never yields.
	cmd.Env = append(cmd.Env, pingpongCPUVar+"="+strconv.Itoa(int(last)), "GOMAXPROCS=4")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		s.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		s.Fatal(err)
	}
	s.Start(s.Path+"/"+pingpongGroup, cmd)
	return pinger{s.TB, in, bufio.NewReader(out)}
}

// A volley holds what a number of round trips cost.
type volley struct{ ns, cpuNs, switches int64 }

func (v volley) cpuNsPerSwitch() float64 { return float64(v.cpuNs) / float64(v.switches) }

// run makes the process do a number of round trips.
func (p pinger) run(rounds int) (v volley) {
	p.Helper()
	if _, err := fmt.Fprintln(p.in, rounds); err != nil {
		p.Fatal(err)
	}
	if _, err := fmt.Fscanln(p.out, &v.ns, &v.cpuNs, &v.switches); err != nil {
		p.Fatal(err)
	}
	return v
}
