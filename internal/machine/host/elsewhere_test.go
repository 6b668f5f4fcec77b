package host_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/machine/host"
	"tenon.sh/tenon/internal/machine/restore"
	"tenon.sh/tenon/internal/model/node"
)

// contained is a Tenon in mount and PID namespaces of its own, as in a container. Its
// state directory has the path of one of the machine. It limits a cgroup and makes
// another one, says so, and runs until it is killed.
func contained() {
	die := func(err error) {
		if err != nil {
			fmt.Println("contained:", err)
			os.Exit(1)
		}
	}
	dir := os.Getenv("CONTAINED_DIR")
	die(syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""))
	if os.Getpid() == 1 {
		die(syscall.Mount("proc", "/proc", "proc", 0, ""))
	}
	die(syscall.Mount("tmpfs", dir, "tmpfs", 0, "mode=0700"))
	h, err := host.Open(host.Options{JournalDir: dir})
	die(err)
	die(h.MakeGroup(node.CgroupPath(os.Getenv("CONTAINED_MADE"))))
	die(h.Apply(context.Background(), quotaOf(node.CgroupPath(os.Getenv("CONTAINED_JOB")))))
	fmt.Println("ready")
	time.Sleep(time.Minute)
}

func quotaOf(p node.CgroupPath) plan.Step {
	return plan.Step{Knob: node.Knob{Cgroup: p, File: node.FileCPUMax}, To: node.CPUMax{Quota: 2_000_000, Period: 100_000_000}}
}

// TestARestoreLeavesWhatARunningProcessElsewhereHolds runs a restore beside a Tenon
// that has the same state directory in another mount namespace. The restore must
// name its process and change nothing. After the process was killed, a restore must
// undo everything by the notes.
func TestARestoreLeavesWhatARunningProcessElsewhereHolds(t *testing.T) {
	for name, flags := range map[string]uintptr{"a mount namespace": syscall.CLONE_NEWNS, "mount and PID namespaces": syscall.CLONE_NEWNS | syscall.CLONE_NEWPID} {
		t.Run(name, func(t *testing.T) {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			m := open(t, false)
			x := lossScene{m: m, dir: filepath.Join(t.TempDir(), "state"), job: m.group(t, "job"), made: node.CgroupPath(groupName("made"))}
			if err := cgroup.SetNote(x.directory(t, x.job), "probe", "text"); err != nil {
				skip(t, "the kernel keeps no notes: %v", err)
			}
			do(t, cgroup.DropNote(x.directory(t, x.job), "probe"))
			do(t, os.Mkdir(x.dir, 0o700))
			c := exec.Command("/proc/self/exe")
			c.Env = append(os.Environ(), "TENON_TEST_ROLE=contained", "CONTAINED_DIR="+x.dir, "CONTAINED_JOB="+string(x.job), "CONTAINED_MADE="+string(x.made))
			c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: flags, Pdeathsig: syscall.SIGKILL}
			c.Stderr = os.Stderr
			out, err := c.StdoutPipe()
			do(t, err)
			if err := c.Start(); err != nil {
				skip(t, "cannot make namespaces: %v", err)
			}
			end := func() { _, _ = c.Process.Kill(), c.Wait() }
			t.Cleanup(func() { end(); _ = m.tree.Remove(string(x.made)) })
			if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
				t.Fatalf("%s (%v)", line, err)
			}

			h, err := host.Open(host.Options{JournalDir: x.dir})
			do(t, err)
			planned, err := h.RestorePlan(t.Context())
			do(t, err)
			done, err := h.Restore(t.Context())
			do(t, err)
			for _, r := range []restore.Report{planned, done} {
				want := fmt.Sprintf("1 knob was changed and 1 cgroup was made by process %d, which runs", c.Process.Pid)
				if err := r.Incomplete(); !r.Empty() || !r.OnlyOthers() || err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(r.String(), want) {
					t.Errorf("%v (report %v), want %s", err, r, want)
				}
			}
			if v, err := m.tree.ReadCPUMax(string(x.job)); err != nil || v.Quota > 1<<62 || !m.tree.Exists(string(x.made)) {
				t.Errorf("the restore undid the quota (%v, %v) or the cgroup", v, err)
			}
			if n, err := h.Adopt(); err != nil || n != 0 {
				t.Errorf("the next agent recovers %d entries: %v", n, err)
			}
			do(t, h.Close())

			end()
			h, err = host.Open(host.Options{JournalDir: x.dir})
			do(t, err)
			r, err := h.Restore(t.Context())
			if v, readErr := m.tree.ReadCPUMax(string(x.job)); err != nil || readErr != nil || v.Quota < 1<<62 || m.tree.Exists(string(x.made)) ||
				len(r.Restored) != 1 || len(r.Removed) != 1 || len(r.Running) != 0 {
				t.Errorf("after kill -9: %v, %v %v; quota %v", err, r, readErr, v)
			}
			do(t, h.Close())
		})
	}
}

// TestTheValueOfAnotherTenonIsNotRestored has two Tenons with state directories of their
// own, which limit the same cgroup. Each of them must put back the value from before both,
// in either order.
func TestTheValueOfAnotherTenonIsNotRestored(t *testing.T) {
	m := open(t, false)
	for name, secondFirst := range map[string]bool{"the second restores first": true, "the first restores first": false} {
		t.Run(name, func(t *testing.T) {
			job := m.group(t, "job")
			if err := cgroup.SetNote(lossScene{m: m}.directory(t, job), "probe", "text"); err != nil {
				skip(t, "the kernel keeps no notes: %v", err)
			}
			var tenons []*host.Host
			for range 2 {
				h, err := host.Open(host.Options{JournalDir: t.TempDir()})
				do(t, err)
				t.Cleanup(func() { do(t, h.Close()) })
				do(t, h.Apply(t.Context(), quotaOf(job)))
				tenons = append(tenons, h)
			}
			if secondFirst {
				slices.Reverse(tenons)
			}
			for i, h := range tenons {
				r, err := h.Restore(t.Context())
				do(t, err)
				if v, err := m.tree.ReadCPUMax(string(job)); err != nil || v.Quota < 1<<62 {
					t.Errorf("after restore %d: %v, %v, %v", i+1, v, err, r)
				}
			}
		})
	}
}
