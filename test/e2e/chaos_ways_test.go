package e2e

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/model/unit"
)

// chaosWays are the ways of damage. Each repairs the site afterwards. Only
// cgroups that exchange renamed keep their new names.
var chaosWays = []way{
	{"names exchanged", func(c *chaos) {
		if c.tree.Version() == 1 {
			c.exchange(lsPod, bePod)
		}
	}},
	{"names exchanged unseen", func(c *chaos) {
		if c.tree.Version() == 1 {
			c.kill(true)
			c.exchange(lsPod, bePod)
		}
	}},
	{"a job renamed out of the rules", func(c *chaos) {
		if c.tree.Version() == 1 {
			c.run("pods/be-leaves", "sleep", "600")
			c.awaitLimit("pods/be-leaves")
			c.rename("pods/be-leaves", "pods/elsewhere")
			eventually(c.t, "the job outside the rules has no limit", func() bool {
				m, err := c.tree.ReadMemory(string(c.path("pods/elsewhere")))
				return err == nil && m.Max > 1<<60
			})
		}
	}},
	{"state removed", func(c *chaos) {
		c.removeState()
		c.run("batch/late", "sleep", "600")
		c.awaitLimit("batch/late")
		c.awaitWatchdog()
	}},
	{"state removed unseen", func(c *chaos) {
		c.kill(true)
		c.removeState()
	}},
	{"journal overwritten", func(c *chaos) {
		c.overwrite(c.journalFile())
		c.run("batch/after-damage", "sleep", "600")
		c.awaitLimit("batch/after-damage")
	}},
	{"journal overwritten unseen", func(c *chaos) {
		c.kill(true)
		c.overwrite(c.journalFile())
		c.damaged = true
	}},
	{"lock and socket removed", func(c *chaos) {
		for _, name := range []string{"journal.lock", "lease.lock", "machine.lock", "watchdog.lock"} {
			_ = os.Remove(filepath.Join(c.state, name))
		}
		sockets, err := filepath.Glob(filepath.Join(c.state, "*.sock"))
		c.check(err)
		for _, path := range sockets {
			c.check(os.Remove(path))
		}
		eventually(c.t, "the locks and the socket are made again", func() bool {
			for _, path := range append(sockets, filepath.Join(c.state, "lease.lock"), c.lock()) {
				if _, err := os.Stat(path); err != nil {
					return false
				}
			}
			return true
		})
	}},
	{"agent stopped for a while", func(c *chaos) {
		c.d.signal(syscall.SIGSTOP)
		time.Sleep(2 * time.Second)
		c.d.signal(syscall.SIGCONT)
	}},
	{"both killed", func(c *chaos) { c.kill(true) }},
	{"configuration hangs", func(c *chaos) {
		answer := c.hang()
		if answer == nil {
			return
		}
		defer answer()
		c.d.signal(syscall.SIGHUP)
		c.run("batch/meanwhile", "sleep", "600")
		c.awaitLimit("batch/meanwhile")
		c.d.stop()
	}},
	{"configuration is garbage", func(c *chaos) {
		was, err := os.ReadFile(c.file)
		c.check(err, os.WriteFile(c.file, bytes.Repeat([]byte("{]"), 1<<20), 0o600))
		c.d.signal(syscall.SIGHUP)
		c.d.await("is refused", 1)
		c.check(os.WriteFile(c.file, was, 0o600))
	}},
	{"a burst of groups", func(c *chaos) {
		var groups []string
		for i := range 100 {
			p := string(c.path(fmt.Sprintf("batch/burst%d", i)))
			c.check(c.tree.Make(p))
			groups = append(groups, p)
		}
		c.awaitLimit("batch/burst99")
		for _, p := range slices.Backward(groups) {
			c.check(c.tree.Remove(p))
		}
	}},
	{"a storm of forks", func(c *chaos) {
		storm := c.run("batch/storm", "sh", "-c", "while :; do (sleep 0.2 &); done")
		c.awaitLimit("batch/storm")
		time.Sleep(time.Second)
		c.check(storm.Process.Kill())
		c.tasks = slices.DeleteFunc(c.tasks, func(pid int) bool { return pid == storm.Process.Pid })
	}},
	{"CPUs narrowed by another", func(c *chaos) {
		// This way of damage uses the job, because for a service it would be no
		// damage: the owner of a service may lower its limits.
		p := string(c.path(job))
		if c.tree.Version() == 2 {
			return // with cgroup v2 this damage cannot be undone, because the kernel refuses an empty set for a group with processes
		}
		was, err := c.tree.ReadCPUs(p)
		c.check(err)
		all, err := c.tree.EffectiveCPUs(p)
		c.check(err)
		for cpu := range all.All() {
			c.check(c.tree.WriteCPUs(p, unit.CPUSetOf(cpu)))
			break
		}
		time.Sleep(300 * time.Millisecond)
		c.check(c.tree.WriteCPUs(p, was))
	}},
	{"full disk", func(c *chaos) {
		filler := filepath.Join(filepath.Dir(c.state), "filler")
		f, err := os.Create(filler)
		c.check(err)
		page := make([]byte, 4096)
		for err == nil {
			_, err = f.Write(page)
		}
		_ = f.Close()
		time.Sleep(500 * time.Millisecond)
		c.servicesAreWell("full disk, while it lasts")
		c.check(os.Remove(filler))
		c.run("batch/room-again", "sleep", "600")
		c.awaitLimit("batch/room-again")
	}},
	{"a fight over the quota", func(c *chaos) {
		be := string(c.path(batch))
		for end := time.Now().Add(2 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
			c.check(c.tree.WriteCPUMax(be, cgroup.CPUMax{Quota: cgroup.NoQuota, Period: 100 * time.Millisecond}))
		}
		eventually(c.t, "BE is bounded again", func() bool { return c.quota().Quota != cgroup.NoQuota })
	}},
}

// removeState removes the state directory, although tenond may write into it
// meanwhile.
func (c *chaos) removeState() {
	c.t.Helper()
	eventually(c.t, "the state is removed", func() bool { return os.RemoveAll(c.state) == nil })
}

func (c *chaos) journalFile() string {
	c.t.Helper()
	var files []string
	eventually(c.t, "there is a journal", func() bool {
		all, err := filepath.Glob(filepath.Join(c.state, "journal-*.jsonl"))
		files = all
		return err == nil && len(all) == 1
	})
	return files[0]
}

// overwrite damages a file in one of several ways.
func (c *chaos) overwrite(path string) {
	c.t.Helper()
	text, err := os.ReadFile(path)
	c.check(err)
	switch c.random.IntN(4) {
	case 0:
		text = nil
	case 1:
		text = text[:len(text)/2]
	case 2:
		copy(text[len(text)/3:], make([]byte, len(text)/3))
	case 3:
		text = []byte(strings.Repeat("garbage ", 100))
	}
	c.check(os.WriteFile(path, text, 0o600))
}

// hang moves the configuration to a file system that never answers (FUSE). It
// returns a function that moves the configuration back. If this kernel has no
// FUSE, it returns nil.
func (c *chaos) hang() (answer func()) {
	c.t.Helper()
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		c.t.Logf("no file system that hangs: %v", err)
		return nil
	}
	dir := c.t.TempDir()
	if err := unix.Mount("tenon-test", dir, "fuse", unix.MS_NOSUID|unix.MS_NODEV, fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", fd)); err != nil {
		_ = unix.Close(fd)
		c.t.Logf("no file system that hangs: %v", err)
		return nil
	}
	// The kernel first asks for the version. To its later requests, it needs no
	// answer.
	request := make([]byte, 1<<17)
	n, err := unix.Read(fd, request)
	if err != nil || n < 40 {
		c.t.Fatalf("the first request: %d bytes, %v", n, err)
	}
	reply := make([]byte, 16+64)
	binary.NativeEndian.PutUint32(reply, uint32(len(reply)))
	copy(reply[8:16], request[8:16])                      // unique
	binary.NativeEndian.PutUint32(reply[16:], 7)          // major
	binary.NativeEndian.PutUint32(reply[20:], 31)         // minor
	binary.NativeEndian.PutUint32(reply[16+20:], 128<<10) // max_write
	if _, err := unix.Write(fd, reply); err != nil {
		c.t.Fatal(err)
	}
	link := func(to string) {
		next := c.config + ".next"
		c.check(os.Symlink(to, next), os.Rename(next, c.config))
	}
	link(filepath.Join(dir, "tenon.yaml"))
	return func() {
		link(c.file)
		_ = unix.Close(fd) // all requests fail now
		_ = unix.Unmount(dir, unix.MNT_DETACH)
	}
}
