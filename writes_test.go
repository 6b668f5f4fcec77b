package tenon_test

import (
	"go/ast"
	"go/token"
	"go/types"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// An occasion is the reason why Tenon writes to the kernel.
type occasion string

const (
	applies    occasion = "apply"      // Apply performs a step of the plan, also during a restore
	groups     occasion = "groups"     // a command makes and removes the cgroup that it needs
	reflex     occasion = "reflex"     // the write cannot wait for the next tick: Guard, Tend, an event of the scheduler
	paced      occasion = "paced"      // the write may take long, so a goroutine makes it after the tick that decided it
	counts     occasion = "counts"     // the kernel starts to count; no task runs differently
	tries      occasion = "tries"      // a capability is tested on an object of the agent, and the object is restored
	own        occasion = "own"        // a process of Tenon configures itself or a command that it started
	experiment occasion = "experiment" // the lab prepares the machine for a run
)

// kernelWrites lists every function outside internal/kernel that changes the
// kernel through a function of internal/kernel, and every function of
// internal/machine that does so directly. The list is exact: a new caller fails
// the test, and so does a function that does not write any more.
var kernelWrites = []struct {
	when               occasion
	in, functions, why string
}{
	{applies, "machine/host/knob.go", "adapters", "the table of the knobs of a cgroup"},
	{applies, "machine/change/notes.go", "write unnote", "the value from before, at the cgroup itself; no task runs differently"},
	{applies, "machine/vendormark/marks.go", "Write", "the mark of a vendor's kernel, and its switch"},
	{applies, "machine/cachectl/knob.go", "writeL3 writeMB writeMembership", "the knobs of resctrl"},
	{applies, "machine/cachectl/group.go", "Make remove", "a control group exists as long as a knob of it is set"},
	{applies, "machine/host/runs.go", "write end kill", "the end of best-effort work, and its freezing"},
	{applies, "machine/vendormark/marks.go", "Unmark", "work that ends is not held back by its mark"},
	{applies, "machine/isolation/exempt.go", "ClearIdle", "work that ends is not held back by cpu.idle"},
	{applies, "machine/isolation/isolation.go", "makeFair", "work that ends is not held back by the scheduler"},
	{applies, "machine/isolation/threads.go", "convert", "the knobs of threads"},
	{applies, "machine/isolation/cookies.go", "get give takeBack sweep unused", "the knobs of cookies"},
	{applies, "machine/isolation/released.go", "takeBack removeEverywhere", "a release of the knobs of threads"},
	{applies, "machine/bescheduler/scheduler.go", "takeDown", "a release of the scheduler"},
	{applies, "machine/bescheduler/load.go", "load change drop", "the knob of the scheduler; loading takes longer than a turn"},
	{applies, "machine/bescheduler/orders.go", "orderCap orderGroup push pushOrders", "the knobs of the scheduler's maps"},
	{applies, "machine/bescheduler/scheduler.go", "Close", "the scheduler goes with the host that loaded it"},
	{applies, "machine/blockio/knob.go", "writeMax writeLatency weights", "the knobs of block I/O"},
	{groups, "machine/host/group.go", "MakeGroup RemoveGroup Attach", "a cgroup of tenon run, or of an experiment; journaled"},
	{groups, "machine/host/controllers.go", "enableControllers", "the controllers that such a cgroup needs; journaled"},
	{groups, "machine/restore/controllers.go", "disableControllers", "the controllers that such a cgroup needed and no other may need"},
	{reflex, "machine/bescheduler/scheduler.go", "Beat", "the heartbeat of the scheduler"},
	{reflex, "machine/isolation/reflexes.go", "ReleaseExt", "the watchdog takes threads out of a dead agent's scheduler"},
	{reflex, "machine/bescheduler/scheduler.go", "handleExit", "what is left of a scheduler that ended by itself"},
	{reflex, "machine/isolation/strays.go", "convertStray", "a thread that has not the policy of its group"},
	{reflex, "machine/isolation/strays.go", "demote endDemotions", "a thread that waits so long that the kernel would end the scheduler"},
	{reflex, "machine/isolation/cookies.go", "strip", "a latency-sensitive thread with the cookie of best-effort ones"},
	{reflex, "machine/isolation/attribute.go", "strip", "a latency-sensitive thread with what only best-effort ones have"},
	{paced, "machine/host/host.go", "reclaim", "the memory of best-effort work that the kernel reclaims"},
	{counts, "machine/usage/delays.go", "Count start end", "begin and end of counting"},
	{counts, "machine/usage/slots.go", "follow assign shareSlot", "the workloads whose waits are counted"},
	{counts, "machine/usage/siblings.go", "watchSiblings", "the CPUs on whose siblings best-effort work is counted"},
	{counts, "agent/daemon/pressure.go", "trigger", "a PSI trigger, which ends with its file"},
	{counts, "agent/scrape/socket.go", "openMeter begin end endUnused", "the services whose sockets are watched"},
	{tries, "machine/capability/cgroup.go", "makeTemporary probeEnabled", "a cgroup for the moment; journaled, and not by reading commands"},
	{tries, "machine/capability/hardware.go", "probeTCP", "programs that are attached nowhere"},
	{tries, "machine/capability/task.go", "probeSlice probeSchedIdle ownThreadToFIFO", "a thread for the moment"},
	{own, "machine/launch/lock.go", "lock", "a launcher that waits stops with its terminal's job"},
	{own, "machine/launch/aside.go", "attachAll raise", "the launcher itself, while it has the lock"},
	{own, "machine/launch/signals.go", "pass", "signals for the command"},
	{own, "machine/launch/wait.go", "linger moveOut", "what the command left"},
	{own, "machine/launch/idle.go", "idleSelf", "a best-effort command takes the least priority before it runs"},
	{own, "machine/lease/guard.go", "Steady", "the watchdog is not starved by what it watches"},
	{experiment, "lab/concurrency/run/measure.go", "build", "the CPUs of all jobs together"},
	{experiment, "lab/concurrency/run/slot.go", "build", "cgroups of jobs with the limits that are compared"},
	{experiment, "lab/memory/run/environment.go", "setUp", "the memory of all that is measured"},
	{experiment, "lab/pinning/run/machine.go", "build spin", "cgroups of the work with the CPUs that are compared"},
	{experiment, "lab/reaction/run/environment.go", "build", "the CPUs of all that is measured"},
	{experiment, "lab/testbed/bounds.go", "WriteQuota", "the quotas that are compared"},
	{experiment, "lab/testbed/child.go", "enter", "the CPUs of a process that the lab started"},
	{experiment, "lab/testbed/pods.go", "Build BuildSpinner", "cgroups with the values that a kubelet gives"},
	{experiment, "lab/testbed/thaw.go", "Freeze Close Thaw", "the batch work of the mode in which the service is alone"},
	{experiment, "lab/turns/turns.go", "weigh", "the batch work of a mode with CPU requests, which runs on in the cgroup of its class"},
	{experiment, "lab/testbed/testbed.go", "moveSelf", "the CPUs of the lab itself"},
	{experiment, "lab/stepservice/steps.go", "runOnCPU", "a load that begins on one CPU"},
	{experiment, "lab/colocation/run/traced.go", "trace", "a trace of the kernel's scheduler"},
	{experiment, "lab/labtest/labtest.go", "RequireReal", "a cgroup for the moment; in tests only"},
	{experiment, "lab/work/spin.go", "Spin", "a load on given CPUs"},
}

// systemWrites are the functions by which packages change the kernel or files:
// of the standard library, and of a link to a BPF program.
const systemWrites = "os.Mkdir os.MkdirAll os.MkdirTemp os.OpenFile os.Remove os.RemoveAll os.Rename os.WriteFile " +
	"syscall.Kill syscall.Rmdir syscall.Syscall syscall.Write unix.Kill unix.PrctlArg5Ptr unix.SchedSetAttr unix.SchedSetaffinity unix.Removexattr unix.Setpriority unix.Setxattr unix.Syscall unix.Write " +
	"link.AttachStructOps link.AttachTracing hook.Close ops.Close p.Signal"

// mapWrites are the methods that write BPF maps.
const mapWrites = "Delete Put Set WriteAt"

// readsOnly are functions of internal/kernel that use one of those calls only
// to read. NewSlices tests the kernel's default on its own thread.
const readsOnly = "task.CoreCookie task.NewSlices"

// adapters are the functions of internal/machine, and the types with methods,
// that only pass calls on to internal/kernel. Tests replace them. The list
// contains the callers of these functions instead of the functions themselves.
const adapters = "extPolicy kernelCores kernelPolicies kernelSchedExt longSlices"

// ownFiles are the packages of internal/machine that have their own files on
// tmpfs.
const ownFiles = "internal/machine/journal internal/machine/lease internal/machine/statedir"

// A program is the sources below internal and cmd with their types. The types
// of other modules and of the standard library are not loaded, because a test
// that runs without the go command does not find their sources.
type program struct {
	fset  *token.FileSet
	files map[string][]*ast.File // by folder
	done  map[string]*types.Package
	info  *types.Info
}

func loadProgram(t *testing.T) *program {
	t.Helper()
	p := &program{
		files: map[string][]*ast.File{}, done: map[string]*types.Package{},
		info: &types.Info{Defs: map[*ast.Ident]types.Object{}, Uses: map[*ast.Ident]types.Object{}},
	}
	eachGoFile(t, ".", func(name string, f *ast.File, fset *token.FileSet) {
		p.fset = fset
		folder := path.Dir(filepath.ToSlash(name))
		if root, _, _ := strings.Cut(folder, "/"); (root == "internal" || root == "cmd") && !strings.HasSuffix(name, "_test.go") {
			p.files[folder] = append(p.files[folder], f)
		}
	})
	for folder := range p.files {
		if _, err := p.Import(ourModule + folder); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

// Import returns a package of this repository with its types, and an empty
// package for any other.
func (p *program) Import(name string) (*types.Package, error) {
	if pkg := p.done[name]; pkg != nil {
		return pkg, nil
	}
	conf := types.Config{Importer: p, Error: func(error) {}} // ignore errors about types that are not loaded
	pkg, _ := conf.Check(name, p.fset, p.files[strings.TrimPrefix(name, ourModule)], p.info)
	p.done[name] = pkg
	return pkg, nil
}

// eachFunction calls the function use for each function of a folder.
func (p *program) eachFunction(folder string, use func(fn *ast.FuncDecl, self *types.Func)) {
	for _, f := range p.files[folder] {
		for _, decl := range f.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok {
				use(fn, p.info.Defs[fn.Name].(*types.Func))
			}
		}
	}
}

// uses reports whether a function refers to one of the known functions, or to an
// unknown selector. Selectors are used where the test has no type: "os.Mkdir",
// or ".Put" of any value.
func (p *program) uses(fn *ast.FuncDecl, known func(*types.Func) bool, unknown func(x, name string) bool) bool {
	found := false
	ast.Inspect(fn, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Ident:
			if o, is := p.info.Uses[n].(*types.Func); is {
				found = found || known(o.Origin())
			}
		case *ast.SelectorExpr:
			if p.info.Uses[n.Sel] == nil {
				x := ""
				switch of := n.X.(type) {
				case *ast.Ident:
					x = of.Name
				case *ast.SelectorExpr:
					x = of.Sel.Name
				}
				found = found || unknown(x, n.Sel.Name)
			}
		}
		return !found
	})
	return found
}

func has(list, word string) bool { return slices.Contains(strings.Fields(list), word) }

// writers returns the functions of internal/kernel that change the kernel,
// directly or through another function of internal/kernel, and the interface
// methods that such functions implement.
func (p *program) writers() map[*types.Func]bool {
	all := map[*types.Func]bool{}
	named := map[string]map[string]bool{} // by folder: names of functions that are not exported
	for more := true; more; {
		more = false
		for folder, files := range p.files {
			if !strings.HasPrefix(folder, "internal/kernel/") {
				continue
			}
			usesBPF := slices.ContainsFunc(files, func(f *ast.File) bool {
				return slices.ContainsFunc(f.Imports, func(i *ast.ImportSpec) bool { return strings.Contains(i.Path.Value, "/cilium/ebpf") })
			})
			if named[folder] == nil {
				named[folder] = map[string]bool{}
			}
			names := named[folder]
			p.eachFunction(folder, func(fn *ast.FuncDecl, self *types.Func) {
				if all[self] || has(readsOnly, path.Base(folder)+"."+self.Name()) || fn.Body == nil {
					return
				}
				if p.uses(fn, func(o *types.Func) bool { return all[o] || ofInterface(o) && names[o.Name()] },
					func(x, name string) bool {
						return has(systemWrites, x+"."+name) || names[name] || usesBPF && has(mapWrites, name)
					}) {
					all[self], more = true, true
					names[self.Name()] = names[self.Name()] || !self.Exported()
				}
			})
		}
	}
	for more := true; more; { // an adapter may call another one
		more = false
		for folder := range p.files {
			if !strings.HasPrefix(folder, "internal/machine/") {
				continue
			}
			p.eachFunction(folder, func(fn *ast.FuncDecl, self *types.Func) {
				if !all[self] && isAdapter(fn) && p.uses(fn, func(o *types.Func) bool { return all[o] }, func(string, string) bool { return false }) {
					all[self], more = true, true
				}
			})
		}
	}
	p.addInterfaces(all)
	return all
}

func isAdapter(fn *ast.FuncDecl) bool {
	if fn.Recv != nil {
		return has(adapters, receiver(fn))
	}
	return has(adapters, fn.Name.Name)
}

func ofInterface(f *types.Func) bool {
	recv := f.Signature().Recv()
	return recv != nil && types.IsInterface(recv.Type())
}

// addInterfaces adds to the writers the methods of every interface that a type
// with writers implements. It compares types and interfaces by the names of
// their methods.
func (p *program) addInterfaces(writers map[*types.Func]bool) {
	byType := map[types.Type]map[string]bool{} // true if the method writes
	var interfaces []*types.Interface
	for folder := range p.files {
		scope := p.done[ourModule+folder].Scope()
		for _, name := range scope.Names() {
			named, is := scope.Lookup(name).Type().(*types.Named)
			if !is {
				continue
			}
			if i, is := named.Underlying().(*types.Interface); is {
				interfaces = append(interfaces, i)
				continue
			}
			methods, writes := map[string]bool{}, false
			for m := range named.Methods() {
				methods[m.Name()] = writers[m]
				writes = writes || writers[m]
			}
			if writes {
				byType[named] = methods
			}
		}
	}
	for _, i := range interfaces {
		for _, methods := range byType {
			if i.NumMethods() > 0 && slices.IndexFunc(slices.Collect(i.Methods()), func(m *types.Func) bool { _, has := methods[m.Name()]; return !has }) < 0 {
				for m := range i.Methods() {
					if methods[m.Name()] {
						writers[m] = true
					}
				}
			}
		}
	}
}

// TestKernelIsWrittenFromOneList compares kernelWrites with the sources.
func TestKernelIsWrittenFromOneList(t *testing.T) {
	p := loadProgram(t)
	writers := p.writers()
	// The test depends on the recognition of writers, so check one function for
	// each way to write.
	names := map[string]bool{}
	for f := range writers {
		names[strings.ReplaceAll(f.FullName(), ourModule+"internal/", "")] = true
	}
	for _, want := range []string{
		"(*kernel/cgroup.Tree).WriteCPUMax", "(*kernel/cgroup.Tree).Attach", "(*kernel/cgroup.Tree).Make", "(*kernel/cgroup.Tree).Kill",
		"(*kernel/cgroup.Tree).Signal", "(kernel/cgroup.Vendor).Write", "(kernel/cgroup.Vendor).Switch", "(*kernel/resctrl.FS).SetSchemata",
		"(*kernel/rqdelay.Probe).WatchSiblings", "(*kernel/rqdelay.Probe).Close", "(*kernel/scx.Scheduler).SetPods", "(*kernel/scx.Scheduler).Close",
		"(*kernel/task.Cookies).Share", "kernel/task.SetPolicy", "kernel/task.SetAffinity", "(machine/bescheduler.Program).SetGroup", "(machine/isolation.Cookie).Share",
	} {
		if !names[want] {
			t.Errorf("%s is not recognised as a function that writes", want)
		}
	}
	for _, want := range []string{"(*kernel/cgroup.Tree).ReadCPUMax", "(kernel/cgroup.Vendor).Read", "(*kernel/scx.Scheduler).Status", "kernel/task.Attr"} {
		if names[want] {
			t.Errorf("%s is wrongly recognised as a function that writes", want)
		}
	}
	found := map[string][]string{}
	for folder := range p.files {
		if strings.HasPrefix(folder, "internal/kernel/") {
			continue
		}
		p.eachFunction(folder, func(fn *ast.FuncDecl, self *types.Func) {
			if strings.HasPrefix(folder, "internal/machine/") && isAdapter(fn) {
				return
			}
			bySystem := strings.HasPrefix(folder, "internal/machine/") && !has(ownFiles, folder)
			if p.uses(fn, func(o *types.Func) bool { return writers[o] }, func(x, name string) bool { return bySystem && has(systemWrites, x+"."+name) }) {
				file := strings.TrimPrefix(filepath.ToSlash(p.fset.Position(fn.Pos()).Filename), internal)
				found[file] = append(found[file], fn.Name.Name)
			}
		})
	}
	for _, row := range kernelWrites {
		switch inMachine, isLab := strings.HasPrefix(row.in, "machine/"), strings.HasPrefix(row.in, "lab/"); {
		case isLab != (row.when == experiment):
			t.Errorf("%s writes on the occasion %q", row.in, row.when)
		case !inMachine && !isLab && row.when != counts:
			t.Errorf("%s writes to the kernel on the occasion %q, outside of machine", row.in, row.when)
		case row.why == "":
			t.Errorf("%s: %s write for no reason", row.in, row.functions)
		}
		for fn := range strings.FieldsSeq(row.functions) {
			i := slices.Index(found[row.in], fn)
			if i < 0 {
				t.Errorf("%s: %s does not write to the kernel: take it out of the list", row.in, fn)
				continue
			}
			found[row.in] = slices.Delete(found[row.in], i, i+1)
		}
	}
	for _, file := range slices.Sorted(maps.Keys(found)) {
		for _, fn := range found[file] {
			t.Errorf("%s: %s writes to the kernel: see the list in writes_test.go", file, fn)
		}
	}
}

func receiver(fn *ast.FuncDecl) string {
	expr := fn.Recv.List[0].Type
	for {
		switch e := expr.(type) {
		case *ast.StarExpr:
			expr = e.X
		case *ast.IndexExpr:
			expr = e.X
		case *ast.Ident:
			return e.Name
		default:
			return "?"
		}
	}
}
