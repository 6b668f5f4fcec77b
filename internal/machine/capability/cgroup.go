package capability

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/model/node"
)

// A cgroupFile is a cgroup file that shows a feature. The kernel has the
// feature if the file exists.
type cgroupFile struct {
	mechanism  node.Feature
	controller string
	v1, v2     string // empty: cgroups of that version lack the feature
}

var cgroupFiles = []cgroupFile{
	{node.FeatureCPUIdle, "cpu", "cpu.idle", "cpu.idle"},
	{node.FeatureCPUWeight, "cpu", "cpu.shares", "cpu.weight"},
	{node.FeatureCPUMax, "cpu", "cpu.cfs_quota_us", "cpu.max"},
	{node.FeatureCPUBurst, "cpu", "cpu.cfs_burst_us", "cpu.max.burst"},
	{node.FeatureCPUSets, "cpuset", "cpuset.cpus", "cpuset.cpus"},
	{node.FeatureCPUPartition, "cpuset", "", "cpuset.cpus.partition"},
	{node.FeatureMemoryLimit, "memory", "memory.limit_in_bytes", "memory.max"},
	{node.FeatureMemoryProtect, "memory", "", "memory.low"},
	{node.FeatureMemoryReclaim, "memory", "", "memory.reclaim"},
}

// probeCgroups looks for files in a cgroup below the root, because the root
// itself lacks most of them.
func (p prober) probeCgroups(can node.Capabilities) {
	for _, f := range cgroupFiles {
		can[f.mechanism] = p.probeFile(f)
	}
	for _, v := range node.VendorMarks {
		can[v.Can] = p.probeFile(cgroupFile{v.Can, "cpu", string(v.Can), string(v.Can)})
	}
	can[node.FeaturePSICgroup] = p.probePressure()
	can[node.FeatureCgroupFreezer] = p.probeUnused("freezer", "freezer.state", "cgroup.freeze")
	can[node.FeatureCgroupDelegate] = p.probeDelegation()
	can[node.FeatureCgroupNotes] = p.probeNotes()
}

func (p prober) probeFile(f cgroupFile) node.Answer {
	if p.Tree == nil {
		return unknown("no cgroups: %v", p.NoTree)
	}
	name := f.v2
	switch p.Tree.VersionOf(f.controller) {
	case 0:
		return no("the cgroup controller %s is not mounted", f.controller)
	case 1:
		if name = f.v1; name == "" {
			return no("%s is cgroup v2 only, and the controller %s is on v1", f.v2, f.controller)
		}
	}
	dir, err := p.Tree.Dir(f.controller, "")
	if err != nil {
		return unknown("%v", err)
	}
	return p.lookInGroups(dir, name)
}

// lookInGroups looks for a file in the cgroups below a root. If this gives no
// answer and p.try is true, it makes a temporary cgroup.
func (p prober) lookInGroups(root, name string) node.Answer {
	groups, err := p.groupsIn(root)
	if err != nil {
		return unknown("%v", err)
	}
	for _, g := range groups {
		if _, err := os.Stat(filepath.Join(g, name)); err == nil {
			return yes("%s exists", filepath.Join(g, name))
		}
	}
	controller, _, _ := strings.Cut(name, ".")
	for _, g := range groups {
		// On v2, the file is also missing if the parent cgroup has not enabled
		// the controller for its children.
		if !onV2(root) || controller == "cgroup" || listed(filepath.Join(filepath.Dir(g), "cgroup.subtree_control"), controller) {
			return no("%s does not exist in %s", name, g)
		}
	}
	if !p.try {
		return unknown("no cgroup shows whether there is %s: tenon doctor --try makes one for a moment", name)
	}
	group, remove, err := p.makeTemporary(root)
	if err != nil {
		return unknown("no group to look in: %v", err)
	}
	defer remove()
	if _, err := os.Stat(filepath.Join(group, name)); err == nil {
		return yes("%s exists in a new cgroup", name)
	}
	if onV2(root) && !listed(filepath.Join(root, "cgroup.subtree_control"), controller) {
		return p.probeEnabled(root, group, controller, name)
	}
	return no("%s does not exist in a new cgroup", name)
}

// makeTemporary makes a cgroup below a root, and journals it before. The caller
// must call remove.
func (p prober) makeTemporary(root string) (dir string, remove func(), err error) {
	if err := checkWritable(root); err != nil {
		return "", nil, fmt.Errorf("make a cgroup in %s: %w", root, err)
	}
	group := node.CgroupPath(fmt.Sprintf("tenon-probe-%d-%d", os.Getpid(), time.Now().UnixNano()))
	if err := p.Journal.RecordGroup(group); err != nil {
		return "", nil, err
	}
	dir = filepath.Join(root, string(group))
	remove = func() {
		if err := syscall.Rmdir(dir); err == nil || errors.Is(err, fs.ErrNotExist) {
			_ = p.Journal.Removed(group)
		}
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		remove()
		return "", nil, err
	}
	return dir, remove, nil
}

// probeEnabled enables a controller for the children of the root, looks for the
// file, and disables the controller again.
func (p prober) probeEnabled(root, group, controller, name string) node.Answer {
	control := filepath.Join(root, "cgroup.subtree_control")
	if !listed(filepath.Join(root, "cgroup.controllers"), controller) {
		return no("%s does not list %s", filepath.Join(root, "cgroup.controllers"), controller)
	}
	if err := p.Journal.RecordEnabled(controller); err != nil {
		return unknown("turn on %s: %v", controller, err)
	}
	// If another program needs the controller by now, the kernel refuses to
	// disable it, and the controller is not Tenon's any more.
	defer func() { _ = p.Journal.ForgetEnabled(controller) }()
	if err := os.WriteFile(control, []byte("+"+controller), 0); err != nil {
		return unknown("turn on %s: %v", controller, err)
	}
	defer func() { _ = os.WriteFile(control, []byte("-"+controller), 0) }()
	if _, err := os.Stat(filepath.Join(group, name)); err != nil {
		return no("%s does not exist in a new cgroup with %s", name, controller)
	}
	return yes("%s exists in a new cgroup with %s", name, controller)
}

func onV2(root string) bool {
	_, err := os.Stat(filepath.Join(root, "cgroup.subtree_control"))
	return err == nil
}

func listed(file, word string) bool {
	text, err := os.ReadFile(file)
	return err == nil && slices.Contains(strings.Fields(string(text)), word)
}

// groupsIn lists the cgroups in which to look for files. These are the ones on the
// two levels below a root, on which systemd and the kubelet enable controllers.
func (p prober) groupsIn(root string) ([]string, error) {
	if p.Only != "" {
		return []string{filepath.Join(root, string(p.Only))}, nil
	}
	top, err := filepath.Glob(filepath.Join(root, "*", "cgroup.procs"))
	if err != nil {
		return nil, err
	}
	second, err := filepath.Glob(filepath.Join(root, "*", "*", "cgroup.procs"))
	if err != nil {
		return nil, err
	}
	var groups []string
	for _, file := range append(top, second...) {
		groups = append(groups, filepath.Dir(file))
	}
	return groups, nil
}

// probeUnused looks for a file that package cgroup does not use. On v1 it looks
// in the hierarchy of the controller v1Controller, and on v2 in the unified
// hierarchy.
func (p prober) probeUnused(v1Controller, v1, v2 string) node.Answer {
	if p.Tree == nil {
		return unknown("no cgroups: %v", p.NoTree)
	}
	root, err := p.Tree.Dir("cpu", "")
	if err != nil {
		return unknown("%v", err)
	}
	if p.Tree.VersionOf("cpu") == 2 {
		return p.lookInGroups(root, v2)
	}
	root = filepath.Join(filepath.Dir(root), v1Controller)
	if a := exists(root); a.Verdict != node.Yes {
		return a
	}
	return p.lookInGroups(root, v1)
}

func (p prober) probePressure() node.Answer {
	if p.Tree == nil {
		return unknown("no cgroups: %v", p.NoTree)
	}
	if p.Tree.VersionOf("cpu") == 1 {
		return no("cpu.pressure of a cgroup is cgroup v2 only, and the controller cpu is on v1")
	}
	root, err := p.Tree.Dir("cpu", "")
	if err != nil {
		return unknown("%v", err)
	}
	a := p.lookInGroups(root, "cpu.pressure")
	if a.Verdict != node.Yes {
		return a
	}
	if _, err := p.Tree.Pressure("", "cpu"); err != nil && errors.Is(err, syscall.EOPNOTSUPP) {
		return no("%v", err)
	}
	return a
}

// probeDelegation answers whether this user may make cgroups. Root may make
// them everywhere. Another user needs a cgroup that root has delegated.
func (p prober) probeDelegation() node.Answer {
	if p.Tree == nil {
		return unknown("no cgroups: %v", p.NoTree)
	}
	root, err := p.Tree.Dir("cpu", "")
	if err != nil {
		return unknown("%v", err)
	}
	entries, err := p.FS.SelfCgroup()
	if err != nil {
		return unknown("%v", err)
	}
	var dirs []string
	for _, e := range entries {
		if slices.Contains(e.Controllers, "cpu") || (len(e.Controllers) == 0 && p.Tree.VersionOf("cpu") == 2) {
			dirs = append(dirs, filepath.Join(root, filepath.Clean("/"+e.Path)))
		}
	}
	if os.Geteuid() == 0 {
		dirs = append([]string{root}, dirs...)
	}
	why := "own cgroup not found"
	for _, dir := range dirs {
		switch err := checkWritable(dir); {
		case err == nil:
			return yes("%s can be written by uid %d", dir, os.Geteuid())
		case errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS):
			why = fmt.Sprintf("%s cannot be written by uid %d: %v", dir, os.Geteuid(), err)
		default:
			return unknown("%s: %v", dir, err)
		}
	}
	return no("%s", why)
}

// probeNotes answers whether this process may write notes at cgroups.
func (p prober) probeNotes() node.Answer {
	switch {
	case p.Tree == nil:
		return unknown("no cgroups: %v", p.NoTree)
	case !cgroup.NotesReadable():
		return no("this process has no CAP_SYS_ADMIN, which the kernel wants for the attributes trusted.* of a cgroup")
	}
	return yes("this process has CAP_SYS_ADMIN, for the attributes trusted.* of a cgroup")
}

// checkWritable returns an error if this user may not write to dir. It writes nothing.
func checkWritable(dir string) error {
	const writeOK, searchOK = 2, 1
	return syscall.Access(dir, writeOK|searchOK)
}

// hasLine reports whether some line of text ends with the word lastWord.
func hasLine(text []byte, lastWord string) bool {
	for line := range bytes.Lines(text) {
		words := bytes.Fields(line)
		if len(words) > 0 && string(words[len(words)-1]) == lastWord {
			return true
		}
	}
	return false
}
