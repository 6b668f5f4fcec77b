package host

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/kernel/proc"
	"tenon.sh/tenon/internal/model/node"
)

// changes watches a tree of directories. The returned function lists what was
// created, removed or written in the tree since its last call.
func changes(t *testing.T, root string) func() []string {
	t.Helper()
	fd, err := syscall.InotifyInit1(syscall.IN_NONBLOCK | syscall.IN_CLOEXEC)
	do(t, err)
	t.Cleanup(func() { _ = syscall.Close(fd) })
	dirs := map[int32]string{}
	const writes = syscall.IN_CREATE | syscall.IN_DELETE | syscall.IN_MODIFY | syscall.IN_ATTRIB | syscall.IN_MOVE | syscall.IN_CLOSE_WRITE
	do(t, filepath.WalkDir(root, func(dir string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		wd, err := syscall.InotifyAddWatch(fd, dir, writes)
		dirs[int32(wd)] = dir
		return err
	}))
	return func() []string {
		var all []string
		buf := make([]byte, 1<<16)
		for {
			n, err := syscall.Read(fd, buf)
			if err != nil || n <= 0 {
				return all
			}
			for at := 0; at < n; {
				e := (*syscall.InotifyEvent)(unsafe.Pointer(&buf[at]))
				name := buf[at+syscall.SizeofInotifyEvent : at+syscall.SizeofInotifyEvent+int(e.Len)]
				all = append(all, fmt.Sprintf("%s: %#x", filepath.Join(dirs[e.Wd], strings.TrimRight(string(name), "\x00")), e.Mask))
				at += syscall.SizeofInotifyEvent + int(e.Len)
			}
		}
	}
}

// newV2 creates a cgroup v2 tree of plain files. It has one group, and no
// controller is enabled.
func newV2(t *testing.T) (root string, fs proc.FS) {
	t.Helper()
	dir := t.TempDir()
	root = filepath.Join(dir, "cgroup")
	put := func(file, text string) {
		do(t, os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o644))
	}
	put(filepath.Join(root, "cgroup.controllers"), "cpu cpuset io memory pids\n")
	put(filepath.Join(root, "cgroup.subtree_control"), "\n")
	for _, file := range []string{"cgroup.procs", "cgroup.threads", "cgroup.subtree_control", "cgroup.events"} {
		put(filepath.Join(root, "be", file), "")
	}
	real := proc.Default()
	p := filepath.Join(dir, "proc")
	do(t, os.MkdirAll(filepath.Join(p, "self"), 0o755))
	for _, name := range []string{"stat", "uptime", "meminfo", "sys", "cpuinfo", "filesystems", fmt.Sprint(os.Getpid())} {
		do(t, os.Symlink(filepath.Join(real.Proc, name), filepath.Join(p, name)))
	}
	put(filepath.Join(p, "self/mountinfo"), fmt.Sprintf("31 24 0:28 / %s rw - cgroup2 cgroup2 rw\n", root))
	put(filepath.Join(p, "self/cgroup"), "0::/be\n")
	fs = real
	fs.Proc = p
	return root, fs
}

// TestSnapshotsShowWhetherProtectionIsRecursive checks a mount option of cgroup v2.
func TestSnapshotsShowWhetherProtectionIsRecursive(t *testing.T) {
	for options, want := range map[string]bool{"rw,nsdelegate": false, "rw,nsdelegate,memory_recursiveprot": true} {
		root, fs := newV2(t)
		do(t, os.WriteFile(filepath.Join(fs.Proc, "self/mountinfo"), fmt.Appendf(nil, "31 24 0:28 / %s rw - cgroup2 cgroup2 %s\n", root, options), 0o644))
		tree, err := cgroup.Detect(fs.Proc)
		do(t, err)
		h, err := Open(Options{Tree: tree, FS: fs, JournalDir: filepath.Join(t.TempDir(), "journal")})
		do(t, err)
		s, err := h.Snapshot(t.Context())
		do(t, err, h.Close())
		if got := s.Knobs.Kernel.RecursiveProtection; got != want {
			t.Errorf("%s: recursive protection %t, want %t", options, got, want)
		}
	}
}

// TestReadingCommandsMakeNoCgroup checks that tenon plan, doctor, status and
// explain change no byte of the cgroup tree.
func TestReadingCommandsMakeNoCgroup(t *testing.T) {
	for _, try := range []bool{false, true} {
		t.Run(fmt.Sprintf("try=%t", try), func(t *testing.T) {
			root, fs := newV2(t)
			tree, err := cgroup.Detect(fs.Proc)
			do(t, err)
			h, err := Open(Options{Tree: tree, FS: fs, JournalDir: filepath.Join(t.TempDir(), "journal"), Try: try})
			do(t, err)
			defer func() { do(t, h.Close()) }()
			h.Manage(node.Workload{ID: "be", Class: node.BE, Cgroup: "be", ContentionRoot: "be"})
			seen := changes(t, root)
			can := h.Capabilities()
			for range 2 {
				if _, err := h.Snapshot(context.Background()); err != nil {
					t.Fatal(err)
				}
			}
			what := seen()
			if try && len(what) == 0 {
				t.Error("no cgroup was made: this test would see nothing")
			}
			if !try && len(what) > 0 {
				t.Errorf("changed by looking:\n%s", strings.Join(what, "\n"))
			}
			if a := can[node.FeatureCPUIdle]; !try && (a.Verdict != node.Unknown || !strings.Contains(a.Why, "--try")) {
				t.Errorf("cpu.idle: %v", a)
			}
			if a := can[node.FeatureCgroupFreezer]; !try && a.Verdict != node.No {
				t.Errorf("cgroup.freeze, which every group has or none: %v", a)
			}
		})
	}
}
