package testbed

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"tenon.sh/tenon/internal/kernel/proc"
	"tenon.sh/tenon/internal/model/node"
)

// groupsInMemory records processes as the journal does.
type groupsInMemory struct {
	mu      sync.Mutex
	live    map[int]bool
	attach  error
	looking func(pid int)
}

func (m *groupsInMemory) Spawned(pid int) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.live == nil {
		m.live = map[int]bool{}
	}
	m.live[pid] = true
	return nil
}

func (m *groupsInMemory) Reaped(pid int) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.live, pid)
	return nil
}

func (m *groupsInMemory) Attach(_ node.CgroupPath, pid int) error {
	if m.looking != nil {
		m.looking(pid)
	}
	return m.attach
}

func TestProgramStartsOnlyInItsGroup(t *testing.T) {
	marker := filepath.Join(t.TempDir(), "ran")
	m := &groupsInMemory{looking: func(int) {
		time.Sleep(50 * time.Millisecond)
		if _, err := os.Stat(marker); err == nil {
			t.Error("the program ran before it was in its cgroup")
		}
	}}
	p, err := Start(m, Child{Name: "touch", Argv: []string{"touch", marker}, Group: "g"})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(marker); err != nil {
		t.Error(err)
	}
	p.Kill()
	if len(m.live) != 0 {
		t.Errorf("journal still knows %v", m.live)
	}
}

func TestProgramOutsideItsGroupNeverStarts(t *testing.T) {
	marker := filepath.Join(t.TempDir(), "ran")
	m := &groupsInMemory{attach: errors.New("no such group")}
	_, err := Start(m, Child{Name: "touch", Argv: []string{"touch", marker}, Group: "g"})
	if err == nil || !strings.Contains(err.Error(), "start touch: no such group") {
		t.Errorf("error %v", err)
	}
	if _, err := os.Stat(marker); err == nil {
		t.Error("it ran")
	}
	if len(m.live) != 0 {
		t.Errorf("journal still knows %v", m.live)
	}
}

func TestErrorCarriesTheLastLineOfAComplaint(t *testing.T) {
	p, err := Start(&groupsInMemory{}, Child{Name: "sh", Argv: []string{"sh", "-c", "echo first >&2; echo disk full >&2; exit 3"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Err(); err == nil || err.Error() != "sh ended: exit status 3: disk full" {
		t.Errorf("error %v", err)
	}
	if got := QuoteOutput([]byte("film\nframe=1\rframe=2 \r")); got != ": frame=2" {
		t.Errorf("of progress it quotes %q", got)
	}
}

func TestStopKillsWhatDoesNotEnd(t *testing.T) {
	var out bytes.Buffer
	p, err := Start(&groupsInMemory{}, Child{Name: "sh", Argv: []string{"sh", "-c", "trap '' TERM; while :; do sleep 1; done"}, Stdout: &out})
	if err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	p.Stop(syscall.SIGTERM, 200*time.Millisecond)
	if !p.HasEnded() || time.Since(begun) > 5*time.Second {
		t.Errorf("ended %v after %v", p.HasEnded(), time.Since(begun))
	}
	if err := syscall.Kill(-p.PID, 0); err == nil {
		t.Error("a process of its group is left")
	}
}

func TestStopReachesTheWholeProcessGroup(t *testing.T) {
	dir := t.TempDir()
	ready, asked := filepath.Join(dir, "ready"), filepath.Join(dir, "asked")
	p, err := Start(&groupsInMemory{}, Child{Name: "sh", Argv: []string{"sh", "-c", `trap 'wait; exit 0' TERM
sh -c 'trap "echo > $1; exit 0" TERM; echo > $0; while :; do sleep 0.02; done' "$0" "$1" & wait`, ready, asked}})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Kill()
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		if _, err := os.Stat(ready); err == nil {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the child of the shell does not start")
		}
	}
	p.Stop(syscall.SIGTERM, 5*time.Second)
	if _, err := os.Stat(asked); err != nil {
		t.Error("the child of the shell got no signal")
	}
}

func TestWhatAProgramLeavesInItsGroupEndsWithIt(t *testing.T) {
	var out bytes.Buffer
	p, err := Start(&groupsInMemory{}, Child{Name: "sh", Argv: []string{"sh", "-c", "sleep 60 & echo $!"}, Stdout: &out})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Kill()
	if err := p.Err(); err != nil {
		t.Fatal(err)
	}
	left, err := strconv.Atoi(strings.TrimSpace(out.String()))
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		s, err := proc.Default().PIDStat(left)
		if err != nil || s.State == 'Z' || s.PGRP != p.PID {
			return
		}
		if time.Now().After(end) {
			_ = syscall.Kill(left, syscall.SIGKILL)
			t.Fatal("the child of the shell still runs")
		}
	}
}

// TestAChildOutlivesTheThreadThatAskedForIt ends the thread that called Start.
// The child must survive this.
func TestAChildOutlivesTheThreadThatAskedForIt(t *testing.T) {
	type begun struct {
		p   *Process
		tid int
		err error
	}
	for range 2 { // the main thread of a process does not end
		asked := make(chan begun)
		go func() {
			runtime.LockOSThread() // never unlocked, so the thread ends
			p, err := Start(&groupsInMemory{}, Child{Name: "sleep", Argv: []string{"sleep", "60"}})
			asked <- begun{p, syscall.Gettid(), err}
		}()
		b := <-asked
		if b.err != nil {
			t.Fatal(b.err)
		}
		defer b.p.Kill()
		if b.tid == os.Getpid() {
			continue
		}
		for end := time.Now().Add(5 * time.Second); ; time.Sleep(time.Millisecond) {
			if _, err := os.Stat(filepath.Join("/proc/self/task", strconv.Itoa(b.tid))); err != nil {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("thread %d does not end", b.tid)
			}
		}
		select {
		case <-b.p.Done():
			t.Errorf("it ended with the thread: %v", b.p.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func TestAChildOfAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to change the user")
	}
	own, err := os.Readlink("/proc/self/ns/ipc")
	if err != nil {
		t.Fatal(err)
	}
	out, err := (&Site{}).Await(t.Context(), Child{Name: "sh", User: &syscall.Credential{Uid: 65534, Gid: 65534},
		Argv: []string{"/bin/sh", "-c", "id -u; id -G; pwd; readlink /proc/self/ns/ipc"}})
	if err != nil {
		t.Fatal(err)
	}
	if lines := strings.Fields(string(out)); len(lines) != 4 || lines[0] != "65534" || lines[1] != "65534" || lines[2] != "/" || lines[3] == own {
		t.Errorf("user, groups, directory and IPC namespace %q, those of the lab %q", lines, own)
	}
}
