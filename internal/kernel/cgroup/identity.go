package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// ErrSwitchedOff means that a vendor's kernel can mark groups, but a sysctl
// disables the marks.
var ErrSwitchedOff = errors.New("switched off")

// An Identity is the mark of a group on a vendor's kernel, in the values of
// cpu.bvt_warp_ns. A group with -1 gives way to all others, 0 is the default, and 1
// goes before the others. 2 also keeps groups with -1 off the SMT siblings of its CPUs.
type Identity int

const (
	identityBE     Identity = -1
	identityExpels Identity = 2
)

// A Vendor marks groups on kernels with their own isolation. There are three
// forms; a kernel has at most one of them:
//
//   - Group Identity of Alibaba Cloud Linux 2 and 3: cpu.bvt_warp_ns, which sets
//     several of the flags in cpu.identity together; -2 means the same as -1
//     (4.19.91-24.al7, 5.10.46-7.al8; on cgroup v1 and v2).
//   - Its successor in newer ANCK kernels: cpu.priority from -1 to 1, which also
//     sets and clears cpu.idle, and cpu.identity from -1 to 1 for the siblings.
//   - openEuler: cpu.qos_level, 0 or -1, on some kernels from -2 to 2.
//
// The kernel compares groups with their siblings at every level of the tree, so
// the ancestors of a workload need marks, too. The root cannot have a mark.
type Vendor struct{ files vendorFiles }

// vendorFiles accesses the files of groups in the hierarchy of the cpu
// controller, and the sysctls below /proc/sys.
type vendorFiles interface {
	read(path, file string) (string, error)
	write(path, file, value string) error
	sysctl(name string) (string, error)
	setSysctl(name, value string) error
	weight(path string) (CPUWeight, error)
	setWeight(path string, w CPUWeight) error
}

// Vendor returns a Vendor that marks the groups of this tree. procRoot is where
// procfs with the sysctls is mounted.
func (t *Tree) Vendor(procRoot string) Vendor { return Vendor{treeFiles{t, procRoot}} }

// The files that hold the marks, and the sysctls that control whether marks work.
const (
	fileBVT      = "cpu.bvt_warp_ns"
	filePriority = "cpu.priority"
	fileIdentity = "cpu.identity"
	fileQOSLevel = "cpu.qos_level"

	sysctlIdentity  = "kernel/sched_group_identity_enabled"
	sysctlCoreSched = "kernel/sched_core"
)

// Read reads the mark of a group. It returns ErrUnsupported for the root, and
// on a kernel without marks.
func (v Vendor) Read(path string) (Identity, error) {
	n, err := v.number(path, fileBVT)
	if err == nil {
		return clampIdentity(n), nil
	}
	if !errors.Is(err, ErrUnsupported) {
		return 0, err
	}
	n, err = v.number(path, filePriority)
	if err == nil {
		siblings, err := v.number(path, fileIdentity)
		switch {
		case err != nil && !errors.Is(err, ErrUnsupported):
			return 0, err
		case n > 0 && siblings > 0:
			return identityExpels, nil
		}
		return clampIdentity(n), nil
	}
	if !errors.Is(err, ErrUnsupported) {
		return 0, err
	}
	n, err = v.number(path, fileQOSLevel)
	return clampIdentity(n), err
}

func clampIdentity(n int) Identity { return min(max(Identity(n), identityBE), identityExpels) }

// Write marks a group. It replaces a level that the kernel lacks: without the file for
// siblings, 2 becomes 1; without levels above 0, 1 and 2 become 0. Write returns
// ErrSwitchedOff if marks are switched off and the mark is not 0, or if the kernel
// cannot reset a mark. While core scheduling is on, Write refuses every mark except 0.
func (v Vendor) Write(path string, id Identity) error {
	if id < identityBE || id > identityExpels {
		return fmt.Errorf("mark %s with identity %d: want %d to %d", printPath(path), id, identityBE, identityExpels)
	}
	file, err := v.file(path)
	if err == nil && id != 0 {
		err = v.checkCoreScheduling()
	}
	if err != nil {
		return fmt.Errorf("mark %s with identity %d: %w", printPath(path), id, err)
	}
	switch file {
	case filePriority:
		err = v.writePriority(path, id)
	case fileQOSLevel:
		err = v.files.write(path, file, strconv.Itoa(int(id)))
		if id > 0 && errors.Is(err, syscall.EINVAL) {
			err = v.files.write(path, file, "0")
		}
	default:
		err = v.files.write(path, file, strconv.Itoa(int(id)))
	}
	if errors.Is(err, syscall.EINVAL) {
		err = fmt.Errorf("%w: %w", ErrSwitchedOff, err)
	}
	return err
}

// writePriority marks a group that has cpu.priority. A mark below 0 also makes
// the group idle. Any other mark clears idle, and the kernel then resets the
// weight. writePriority restores the weight that the group had before the call.
// If the group becomes idle, the caller must store the weight: see MakesIdle.
func (v Vendor) writePriority(path string, id Identity) error {
	before, weightErr := v.files.weight(path)
	siblings := map[Identity]string{identityBE: "-1", identityExpels: "1"}[id]
	if siblings == "" {
		siblings = "0"
	}
	err := errors.Join(
		v.files.write(path, filePriority, strconv.Itoa(int(min(id, 1)))),
		ignore(v.files.write(path, fileIdentity, siblings), ErrUnsupported),
	)
	if err != nil || weightErr != nil || id < 0 {
		return err
	}
	if now, err := v.files.weight(path); err != nil || now == before {
		return err
	}
	return v.files.setWeight(path, before)
}

func ignore(err, what error) error {
	if errors.Is(err, what) {
		return nil
	}
	return err
}

// file returns the name of the file with the mark. Each of the three forms of
// Vendor has another one.
func (v Vendor) file(path string) (string, error) {
	var errs []error
	for _, f := range []string{fileBVT, filePriority, fileQOSLevel} {
		_, err := v.files.read(path, f)
		if err == nil {
			return f, nil
		}
		errs = append(errs, err)
	}
	return "", errors.Join(errs...)
}

func (v Vendor) number(path, file string) (int, error) {
	text, err := v.files.read(path, file)
	if err != nil {
		return 0, err
	}
	n, err := strconv.Atoi(strings.TrimSpace(text))
	if err != nil {
		return 0, fmt.Errorf("parse %s in %s: %q: want a number", file, printPath(path), text)
	}
	return n, nil
}

// SwitchedOn reports whether marks have an effect
// (kernel.sched_group_identity_enabled, from 4.19.91-26.4 and 5.10.134-13). If
// not, the kernel accepts only the mark 0. SwitchedOn returns ErrUnsupported if
// the kernel lacks the sysctl; marks then always have an effect.
func (v Vendor) SwitchedOn() (bool, error) {
	text, err := v.files.sysctl(sysctlIdentity)
	return strings.TrimSpace(text) == "1", err
}

// Switch enables or disables the effect of marks. While core scheduling is on, it refuses
// to enable them, because both together have locked up kernels up to 5.10.134-16.1.
func (v Vendor) Switch(on bool) error {
	value := "0"
	if on {
		value = "1"
		if err := v.checkCoreScheduling(); err != nil {
			return fmt.Errorf("write %s 1: %w", sysctlIdentity, err)
		}
	}
	return v.files.setSysctl(sysctlIdentity, value)
}

// checkCoreScheduling returns an error while core scheduling is on. Call it
// before each mark, because any privileged process may have turned it on since
// the last mark.
func (v Vendor) checkCoreScheduling() error {
	if core, err := v.files.sysctl(sysctlCoreSched); err == nil && strings.TrimSpace(core) != "0" {
		return fmt.Errorf("%s is %s, and both together lock up some kernels", sysctlCoreSched, strings.TrimSpace(core))
	}
	return nil
}

// MakesIdle reports whether a mark below 0 also makes the group idle. A group
// that becomes idle loses its weight.
func (v Vendor) MakesIdle(path string) bool {
	file, err := v.file(path)
	return err == nil && file == filePriority
}

// treeFiles accesses the files of the running kernel.
type treeFiles struct {
	tree *Tree
	proc string
}

func (f treeFiles) read(path, file string) (string, error) {
	return read(f.tree, cpu, path, file, func(text string) (string, error) { return text, nil })
}

func (f treeFiles) write(path, file, value string) error { return f.tree.write(cpu, path, file, value) }

func (f treeFiles) weight(path string) (CPUWeight, error) { return f.tree.ReadCPUWeight(path) }

func (f treeFiles) setWeight(path string, w CPUWeight) error { return f.tree.WriteCPUWeight(path, w) }

func (f treeFiles) sysctl(name string) (string, error) {
	file := filepath.Join(f.proc, "sys", name)
	text, err := readFile(file)
	if err != nil {
		return "", fmt.Errorf("read %s: %w", file, addUnsupported(err))
	}
	return text, nil
}

func (f treeFiles) setSysctl(name, value string) error {
	file := filepath.Join(f.proc, "sys", name)
	if err := writePath(file, value+"\n"); err != nil {
		return fmt.Errorf("write %s %s: %w", file, value, addUnsupported(err))
	}
	return nil
}

// addUnsupported adds ErrUnsupported if the kernel lacks the sysctl.
func addUnsupported(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %w", ErrUnsupported, err)
	}
	return err
}
