// Package vm boots temporary virtual machines in software emulation and runs
// programs in them. So code is tested with kernels, topologies and cgroup
// versions that this machine does not have. The guest sees only the packed
// files of the host. Nothing in the guest remains after the run.
//
// Emulation needs no hardware support and no privileges. It is ten to twenty
// times slower than the host, and its times mean nothing. Use it to test
// functions, not latencies.
package vm

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

// A Topology is the arrangement of the CPUs of a machine. Every socket is a
// NUMA node.
type Topology struct {
	Sockets        int
	CoresPerSocket int
	ThreadsPerCore int
	// CachesPerSocket is the number of last-level caches of a socket, which
	// share its cores equally. 0 means one.
	CachesPerSocket int
}

// CPUs returns the number of logical CPUs. CPUs have consecutive numbers: first
// the threads of core 0 of socket 0, then those of the next core, and so on.
func (t Topology) CPUs() int { return t.Sockets * t.CoresPerSocket * t.ThreadsPerCore }

// A Machine is the hardware and the kernel of a virtual machine.
type Machine struct {
	Kernel   string // path of a bzImage
	Topology Topology
	// MiBPerNode is the memory of each NUMA node in MiB. It must hold the
	// unpacked image and the memory of the programs.
	MiBPerNode int
	// MiBWithoutCPUs is the memory of one more NUMA node without CPUs, like
	// persistent or CXL memory. 0 means that there is no such node.
	MiBWithoutCPUs int
	// Emulator is the path of the emulator. The default is qemu-system-x86_64
	// of the Debian package qemu-system-x86.
	Emulator string
	// ICount makes the guest's clock count instructions, 4 ns each, whatever
	// else the host does. Then times differ by only a few percent between runs,
	// and an idle guest costs nothing. All CPUs share one stream of
	// instructions, so a busy CPU slows the others down. Therefore medians,
	// shares and counts can be judged, but not the tails of some thousand
	// samples. ICount needs QEMU 10 (see qemu.sh). Older versions run one CPU
	// for whole ticks.
	ICount bool
	// ShorterTicks counts 2 ns for an instruction in place of 4. Programs then
	// execute twice as many instructions in a second of the guest.
	ShorterTicks bool
	// Disk is a file that becomes /dev/nvme0n1 of the guest. Debian's cloud
	// kernel has the driver for that device built in. Writes of the guest are
	// discarded. If Disk is empty, there is no disk.
	Disk string
	// Network connects the guest with processes of the host. It may be nil.
	Network *Network
	// KernelArgs are added to the kernel's command line.
	KernelArgs []string
	// CPU is the emulator's model of the processor. The default is Skylake,
	// where siblings share an L2 cache, as on hardware.
	CPU string
}

// A Network is the Ethernet of a guest. The emulator makes the connections of
// the guest to other addresses, in a network namespace of the host. If this
// namespace has only a loopback interface, the connections reach nothing else.
// The guest needs the module virtio_net, and calls its interface eth0.
//
// With a Network, the clock of an idle guest with ICount runs like that of the
// host. Otherwise it would jump to the end of each time-out.
type Network struct {
	// Namespace is the path of the namespace, such as /proc/1/ns/net. Only root
	// may enter one.
	Namespace string
	// Subnet is the guest's network, such as 10.0.2.0/24. Gateway is the address
	// in it that means the loopback interface of the namespace.
	Subnet, Gateway string
	// Guest is the address that the guest gives itself. The loopback interface
	// of the namespace must also have it. Connections to its Ports in the
	// namespace then reach the guest.
	Guest string
	Ports []int
}

// options are those of the emulator's user-mode network.
func (n Network) options() string {
	text := fmt.Sprintf("user,id=net,ipv6=off,net=%s,host=%s", n.Subnet, n.Gateway)
	for _, port := range n.Ports {
		text += fmt.Sprintf(",hostfwd=tcp:%s:%d-%[1]s:%[2]d", n.Guest, port)
	}
	return text
}

// TwoSockets returns the machine of most tests. It has two sockets, two cores
// in each socket, and two threads in each core. Each of the two NUMA nodes has
// 1.5 GiB.
func TwoSockets(kernel string) Machine {
	return Machine{
		Kernel:     kernel,
		Topology:   Topology{Sockets: 2, CoresPerSocket: 2, ThreadsPerCore: 2},
		MiBPerNode: 1536,
	}
}

// A Command is a program to run in the guest, as root.
type Command struct {
	Name    string   // name in reports, without spaces
	Args    []string // program and arguments; busybox applets are on PATH
	Dir     string   // empty: /
	Env     []string // KEY=value, in addition to PATH and HOME
	Timeout time.Duration
}

// Shell returns a Command that runs a script in the busybox shell.
func Shell(name, script string) Command {
	return Command{Name: name, Args: []string{"sh", "-c", script}}
}

// An Outcome is the result of a Command.
type Outcome struct {
	Name   string
	Exit   int           // exit status; 128 + signal, 143 on timeout
	Output string        // standard output and standard error in order of time
	Took   time.Duration // on the host's clock
}

// A Report is the result of a run.
type Report struct {
	Boot     time.Duration // from the start of the emulator to the first command
	Total    time.Duration // until the exit of the emulator
	Outcomes []Outcome     // in the order of the commands
	CPU      time.Duration // CPU time of the emulator on the host

	machine  Machine
	image    *Image
	commands []Command
}

// Outcome returns the outcome of the command with this name. It returns false
// if the command has not ended.
func (r Report) Outcome(name string) (Outcome, bool) {
	for _, o := range r.Outcomes {
		if o.Name == name {
			return o, true
		}
	}
	return Outcome{}, false
}

// Repeat runs the command with this name once more, alone in a new machine,
// with more arguments.
func (r Report) Repeat(ctx context.Context, console io.Writer, name string, args ...string) (Report, error) {
	i := slices.IndexFunc(r.commands, func(c Command) bool { return c.Name == name })
	if i < 0 {
		return Report{}, fmt.Errorf("run %s again: there was no such command", name)
	}
	c := r.commands[i]
	c.Args = slices.Concat(c.Args, args)
	return r.machine.Run(ctx, r.image, []Command{c}, console)
}

// Run boots the machine with the files of image, runs all commands one after
// another, and powers off. It copies all output of the guest to console. It
// returns an error if the machine did not reach the end. A failed command is no
// error: its Outcome has the exit status.
func (m Machine) Run(ctx context.Context, image *Image, commands []Command, console io.Writer) (Report, error) {
	dir, err := os.MkdirTemp("", "tenon-vm-")
	if err != nil {
		return Report{}, err
	}
	defer os.RemoveAll(dir)

	initrd := filepath.Join(dir, "initrd.cpio")
	if err := image.write(initrd, commands); err != nil {
		return Report{}, fmt.Errorf("pack the image of the virtual machine: %w", err)
	}
	kernel := filepath.Join(dir, "vmlinux")
	switch plain, err := decompress(m.Kernel, kernel); {
	case err != nil:
		return Report{}, fmt.Errorf("kernel of the virtual machine: %w", err)
	case !plain:
		kernel = m.Kernel
	}
	report, err := m.boot(ctx, kernel, initrd, console)
	report.machine, report.image, report.commands = m, image, commands
	return report, err
}

// boot runs the emulator once.
func (m Machine) boot(ctx context.Context, kernel, initrd string, w io.Writer) (Report, error) {
	begun := time.Now()
	log := newConsole(w, begun)
	var complaints bytes.Buffer
	argv := append([]string{cmp.Or(m.Emulator, emulator)}, m.arguments(kernel, initrd)...)
	if m.Network != nil {
		// nsenter becomes the emulator, and does not start it as a child.
		argv = append([]string{"nsenter", "--net=" + m.Network.Namespace}, argv...)
	}
	qemu := exec.CommandContext(ctx, argv[0], argv[1:]...)
	qemu.Stdout = log
	qemu.Stderr = &complaints
	qemu.WaitDelay = 5 * time.Second
	// The emulator must die together with this process, however this process
	// dies. The kernel sends the signal when the thread that started the
	// emulator ends. LockOSThread keeps that thread alive.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	qemu.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	err := qemu.Run()

	report := Report{Boot: log.boot, Total: time.Since(begun), Outcomes: log.outcomes}
	if p := qemu.ProcessState; p != nil {
		report.CPU = p.UserTime() + p.SystemTime()
	}
	switch {
	case ctx.Err() != nil:
		return report, fmt.Errorf("virtual machine stopped after %.0f s in %s: %w", report.Total.Seconds(), log.describeProgress(), ctx.Err())
	case err != nil:
		return report, fmt.Errorf("%s: %w: %s", qemu.Path, err, strings.TrimSpace(complaints.String()))
	case log.done:
		return report, nil
	}
	return report, errors.Join(fmt.Errorf("virtual machine died in %s", log.describeProgress()), errors.New(log.tail()))
}

// emulator is the default of Machine.Emulator.
const emulator = "qemu-system-x86_64"

// arguments returns the emulator's command line.
func (m Machine) arguments(kernel, initrd string) []string {
	t := m.Topology
	caches := cmp.Or(t.CachesPerSocket, 1)
	args := []string{
		// One thread emulates all CPUs. With a thread for each CPU, a CPU
		// sometimes executes partly written code while another CPU patches the
		// kernel's code (Oops: int3), for example when a program is attached or
		// the first quota is set. Two guests with one thread each are as fast
		// as one guest with several threads.
		"-accel", "tcg,thread=single",
		// Leaf 0xd would enable XSAVE, whose emulation slows each context
		// switch. Without erms, the kernel and the programs copy and clear
		// eight bytes, not one, in a step of an emulated loop.
		"-cpu", cmp.Or(m.CPU, "Skylake-Server-v4,level=0xb,-erms"),
		// The emulator gives each die an L3 cache. The guest knows of no dies
		// without leaf 0x1f.
		"-smp", fmt.Sprintf("%d,sockets=%d,dies=%d,cores=%d,threads=%d", t.CPUs(), t.Sockets, caches, t.CoresPerSocket/caches, t.ThreadsPerCore),
		"-m", fmt.Sprintf("%dM", m.MiBPerNode*t.Sockets+m.MiBWithoutCPUs),
		"-nodefaults", "-no-user-config", "-display", "none", "-serial", "stdio", "-no-reboot",
		"-kernel", kernel, "-initrd", initrd,
		// Without tsc=reliable, the guest finds that its TSCs are not
		// synchronous and uses the slow hpet. panic=-1 together with -no-reboot
		// ends the emulator. loglevel=3 keeps messages about slowness out of
		// the outputs. transparent_hugepage=never: khugepaged has the least
		// weight, and locks the memory map of the test's process while it makes
		// a huge page. That takes ten seconds and more if services keep every
		// CPU busy.
		"-append", strings.Join(append([]string{
			"console=ttyS0", "panic=-1", "oops=panic", "loglevel=3", "tsc=reliable", "mitigations=off",
			"transparent_hugepage=never",
		}, m.KernelArgs...), " "),
	}
	if m.ICount {
		// An instruction takes 2² ns, or 2¹ ns. While all CPUs are idle, the
		// clock jumps, or runs like that of the host.
		shift := 2
		if m.ShorterTicks {
			shift = 1
		}
		sleep := "off"
		if m.Network != nil {
			sleep = "on"
		}
		args = append(args, "-icount", fmt.Sprintf("shift=%d,sleep=%s", shift, sleep))
	}
	if m.Network != nil {
		args = append(args, "-netdev", m.Network.options(), "-device", "virtio-net-pci,netdev=net,romfile=")
	}
	if m.Disk != "" {
		args = append(args, "-drive", "if=none,id=disk,format=raw,snapshot=on,file="+m.Disk, "-device", "nvme,drive=disk,serial=tenon")
	}
	perSocket := t.CoresPerSocket * t.ThreadsPerCore
	for node := range t.Sockets {
		args = append(args,
			"-object", fmt.Sprintf("memory-backend-ram,id=m%d,size=%dM", node, m.MiBPerNode),
			"-numa", fmt.Sprintf("node,nodeid=%d,cpus=%d-%d,memdev=m%d", node, node*perSocket, (node+1)*perSocket-1, node))
		for other := range node {
			args = append(args, "-numa", fmt.Sprintf("dist,src=%d,dst=%d,val=21", other, node))
		}
	}
	if m.MiBWithoutCPUs > 0 {
		args = append(args,
			"-object", fmt.Sprintf("memory-backend-ram,id=m%d,size=%dM", t.Sockets, m.MiBWithoutCPUs),
			"-numa", fmt.Sprintf("node,nodeid=%d,memdev=m%d", t.Sockets, t.Sockets))
		for other := range t.Sockets {
			args = append(args, "-numa", fmt.Sprintf("dist,src=%d,dst=%d,val=40", other, t.Sockets))
		}
	}
	return args
}
