package host_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/kernel/proc"
	"tenon.sh/tenon/internal/machine/host"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// aDisk returns a whole disk of the machine that runs the test.
func aDisk() (unit.Device, error) {
	fs := proc.Default()
	all, err := fs.Partitions()
	for _, p := range all {
		if d, err := fs.BlockDevice(p.Name); err == nil && d.Disk == p.ID {
			return p.ID, nil
		}
	}
	return unit.Device{}, errors.Join(err, errors.New("this machine has no disk"))
}

// readDisk reads some bytes from a device, without the page cache.
func readDisk(argument string) error {
	size, device := 0, ""
	if _, err := fmt.Sscan(argument, &size, &device); err != nil {
		return err
	}
	f, err := os.OpenFile(device, os.O_RDONLY|syscall.O_DIRECT, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	const bite = 256 << 10
	page, err := unix.Mmap(-1, 0, bite, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	for at := 0; err == nil && at < size; at += bite {
		_, err = f.ReadAt(page, int64(at))
	}
	return err
}

// A loop is a loop device: a block device that stores its data in a file.
type loop struct {
	control *os.File
	path    string
	number  int
	id      unit.Device
}

// newLoop creates a loop device, or skips the test.
func newLoop(t *testing.T) *loop {
	t.Helper()
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		skip(t, "a block device of its own needs the loop driver: %v", err)
	}
	t.Cleanup(func() { _ = control.Close() })
	l := &loop{control: control, number: 3000 + os.Getpid()%1000}
	do(t, l.ask(unix.LOOP_CTL_ADD))
	t.Cleanup(func() { _ = l.remove() })
	name := fmt.Sprintf("loop%d", l.number)
	text, err := os.ReadFile("/sys/block/" + name + "/dev")
	do(t, err)
	l.id, err = unit.ParseDevice(strings.TrimSpace(string(text)))
	do(t, err)
	l.path = filepath.Join(t.TempDir(), name)
	do(t, unix.Mknod(l.path, unix.S_IFBLK|0o600, int(unix.Mkdev(l.id.Major, l.id.Minor))))

	backing, err := os.Create(l.path + ".img")
	do(t, err)
	defer backing.Close()
	do(t, backing.Truncate(64<<20))
	device, err := os.OpenFile(l.path, os.O_RDWR, 0)
	do(t, err)
	defer device.Close()
	do(t, unix.IoctlSetInt(int(device.Fd()), unix.LOOP_SET_FD, int(backing.Fd())))
	return l
}

func (l *loop) ask(what uintptr) error {
	if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, l.control.Fd(), what, uintptr(l.number)); errno != 0 {
		return errno
	}
	return nil
}

// remove removes the device. A second call does nothing.
func (l *loop) remove() error {
	if device, err := os.Open(l.path); err == nil {
		_ = unix.IoctlSetInt(int(device.Fd()), unix.LOOP_CLR_FD, 0)
		_ = device.Close()
	}
	var err error
	for range 50 { // the kernel frees it some time later
		if err = l.ask(unix.LOOP_CTL_REMOVE); err == nil || errors.Is(err, syscall.ENODEV) {
			return nil
		}
		time.Sleep(20 * time.Millisecond)
	}
	return err
}

// partition adds a partition to the device. It needs no partition table.
func (l *loop) partition() error {
	device, err := os.Open(l.path)
	if err != nil {
		return err
	}
	defer device.Close()
	// struct blkpg_partition and struct blkpg_ioctl_arg of linux/blkpg.h.
	part := struct {
		start, length int64
		number        int32
		names         [128]byte
	}{start: 1 << 20, length: 32 << 20, number: 1}
	const add = 1
	argument := struct {
		op, flags, size int32
		data            unsafe.Pointer
	}{op: add, size: int32(unsafe.Sizeof(part)), data: unsafe.Pointer(&part)}
	if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, device.Fd(), unix.BLKPG, uintptr(unsafe.Pointer(&argument))); errno != 0 {
		return errno
	}
	return nil
}

func limitRead(d unit.Device, bps int64) node.IOMax {
	l := node.NoIOLimits
	l.ReadBPS = bps
	return node.IOMaxOf(map[unit.Device]node.IOLimits{d: l})
}

// ioGroup returns a new group. Another program has already set the knobs of
// block I/O of this group.
func ioGroup(t *testing.T, m *machine, what string) node.CgroupPath {
	t.Helper()
	p := node.CgroupPath(groupName(what))
	do(t, m.tree.Make(string(p)))
	t.Cleanup(func() { do(t, m.tree.RemoveAll(string(p))) })
	if _, err := m.Knob(node.Knob{Cgroup: p, File: node.FileIOMax}); err != nil {
		skip(t, "limits on block I/O: %v", err)
	}
	return p
}

// TestIOMaxBoundsWhatAGroupReads measures how fast one process reads a device,
// with a limit and without. The limit is at most a twentieth of the speed of
// the device, and the test allows twice the limit. So it needs no accurate
// clock.
func TestIOMaxBoundsWhatAGroupReads(t *testing.T) {
	m := open(t, false)
	p := ioGroup(t, m, "read")
	l := newLoop(t)
	pid, err := m.Start(p, 0)
	do(t, err)
	t.Cleanup(func() { do(t, m.Stop(pid)) })
	rate := func(bytes int) float64 {
		began := time.Now()
		do(t, m.tell(pid, fmt.Sprintf("read %d %s", bytes, l.path)))
		return float64(bytes) / time.Since(began).Seconds()
	}
	rate(1 << 20) // the first reading has no earlier one
	free := rate(8 << 20)
	limit := int64(min(free/20, 4<<20))
	k := node.Knob{Cgroup: p, File: node.FileIOMax}
	do(t, m.Apply(t.Context(), plan.Step{Knob: k, To: limitRead(l.id, limit)}))
	bound := rate(max(int(limit), 1<<20) >> 18 << 18)
	t.Logf("without limit %.1f MB/s; with one of %.2f MB/s %.2f MB/s", free/1e6, float64(limit)/1e6, bound/1e6)
	if bound > 2*float64(limit) {
		t.Errorf("%.0f bytes a second with a limit of %d", bound, limit)
	}
	do(t, m.Apply(t.Context(), plan.Step{Knob: k, To: node.IOMax{}, Release: true}))
	if again := rate(8 << 20); again < 4*float64(limit) {
		t.Errorf("%.0f bytes a second after the limit of %d was given back", again, limit)
	}
}

// TestALimitOfADeviceThatIsGoneDoesNotBlockARestore replaces a limit on a
// device through Tenon, and removes the device. A restore must succeed.
func TestALimitOfADeviceThatIsGoneDoesNotBlockARestore(t *testing.T) {
	m := open(t, false)
	p := ioGroup(t, m, "gone-device")
	k := node.Knob{Cgroup: p, File: node.FileIOMax}
	disk, err := aDisk()
	if err != nil {
		skip(t, "%v", err)
	}
	l := newLoop(t)
	file, line := "io.max", " rbps=5000"
	if m.tree.VersionOf("io") == 1 {
		file, line = "blkio.throttle.read_bps_device", " 5000"
	}
	do(t, m.WriteFile(p, file, l.id.String()+line))

	m.Manage(node.Workload{ID: "be", Class: node.BE, Cgroup: p, ContentionRoot: p})
	m.Show(append([]node.File{node.FileIOMax}, node.Files...))
	both := limitRead(l.id, 1000).Limits()
	both[disk] = limitRead(disk, 2000).Limits()[disk]
	do(t, m.Apply(t.Context(), plan.Step{Knob: k, To: node.IOMaxOf(both)}))
	before := func() node.Value {
		s, err := m.Snapshot(t.Context())
		do(t, err)
		return s.Knobs.Before[k]
	}
	if got := before(); got != limitRead(l.id, 5000) {
		t.Errorf("before Tenon: %v, want the limit of the device", got)
	}
	if err := l.remove(); err != nil {
		t.Skipf("the kernel does not let go of the device: %v", err)
	}
	if got := before(); got != (node.IOMax{}) {
		t.Errorf("before Tenon: %v, of a device that is gone", got)
	}
	r, err := m.Restore(t.Context())
	do(t, err)
	if len(r.Left) > 0 || len(r.Restored) != 1 {
		t.Errorf("%v", r)
	}
	if now, err := m.Knob(k); err != nil || now != (node.IOMax{}) {
		t.Errorf("after the restore: %v, %v", now, err)
	}
	if again, err := m.Restore(t.Context()); err != nil || !again.Empty() {
		t.Errorf("a second restore does %v, %v", again, err)
	}
}

// TestAWeightIsGivenBackWithoutWhatWeighs enables the feature that applies I/O
// weights on a device: bfq on cgroup v1, iocost on v2. After Tenon has written
// a weight, the test disables the feature. The kernel then forgets the weights
// of bfq, so that there is nothing to restore, but keeps those of iocost.
func TestAWeightIsGivenBackWithoutWhatWeighs(t *testing.T) {
	m := open(t, false)
	p := ioGroup(t, m, "weight")
	l := newLoop(t)
	k := node.Knob{Cgroup: p, File: node.FileBFQWeight}
	weigh := func(on bool) error {
		name := map[bool]string{true: "bfq", false: "none"}[on]
		return os.WriteFile(fmt.Sprintf("/sys/block/loop%d/queue/scheduler", l.number), []byte(name), 0)
	}
	if m.tree.VersionOf("io") == 2 {
		k.File = node.FileIOWeight
		weigh = func(on bool) error {
			return m.WriteFile("", "io.cost.qos", fmt.Sprintf("%v enable=%d", l.id, map[bool]int{true: 1}[on]))
		}
	}
	do(t, weigh(true))
	m.Manage(node.Workload{ID: "be", Class: node.BE, Cgroup: p, ContentionRoot: p})
	m.Show([]node.File{k.File})
	s, err := m.Snapshot(t.Context())
	do(t, err)
	for _, d := range s.Devices {
		if d.ID == l.id && d.Weighs != k.File {
			t.Errorf("%q weighs I/O on the device, want %q", d.Weighs, k.File)
		}
	}
	before, err := m.Knob(k)
	do(t, err)
	if before != node.IOWeightOf(100, nil) {
		t.Errorf("a fresh group has the weight %v", before)
	}
	light := node.IOWeightOf(100, map[unit.Device]int64{l.id: 20})
	do(t, m.Apply(t.Context(), plan.Step{Knob: k, To: light}))
	if now, err := m.Knob(k); err != nil || now != light {
		t.Errorf("%v, %v, want %v", now, err, light)
	}
	do(t, weigh(false))
	left := before
	if m.tree.VersionOf("io") == 2 {
		left = light
	}
	if now, err := m.Knob(k); err != nil || now != left {
		t.Errorf("with nothing that weighs: %v, %v, want %v", now, err, left)
	}
	r, err := m.Restore(t.Context())
	do(t, err)
	if len(r.Left) > 0 {
		t.Errorf("%v", r)
	}
	if now, err := m.Knob(k); err != nil || now != before {
		t.Errorf("after the restore: %v, %v, want %v", now, err, before)
	}
}

// TestDevicesComeIntoTheSnapshotAndGo creates a device with a partition while
// the host is open, and removes it again.
func TestDevicesComeIntoTheSnapshotAndGo(t *testing.T) {
	m := open(t, false)
	h, err := host.Open(host.Options{JournalDir: t.TempDir(), Resident: true})
	do(t, err)
	t.Cleanup(func() { _ = h.Close() })
	devices := func() map[unit.Device]node.BlockDevice {
		s, err := h.Snapshot(t.Context())
		do(t, err)
		found := map[unit.Device]node.BlockDevice{}
		for _, d := range s.Devices {
			found[d.ID] = d
		}
		return found
	}
	if len(devices()) > 0 {
		t.Error("devices are looked at, and no policy limits them")
	}
	h.Show(append([]node.File{node.FileIOMax}, node.Files...))
	before := len(devices())
	l := newLoop(t)
	if d, has := devices()[l.id]; !has || d.Disk != l.id {
		t.Errorf("a new device is %+v", d)
	}
	do(t, l.partition())
	parts := 0
	for id, d := range devices() {
		if d.Disk == l.id && id != l.id {
			parts++
			// A partition stands for its disk, because the kernel refuses
			// limits for a partition.
			p := ioGroup(t, m, "part")
			err := m.Apply(t.Context(), plan.Step{Knob: node.Knob{Cgroup: p, File: node.FileIOMax}, To: limitRead(id, 1000)})
			if !errors.Is(err, syscall.ENODEV) {
				t.Errorf("a limit on a partition: %v, want ENODEV", err)
			}
		}
	}
	if parts != 1 {
		t.Errorf("%d partitions of the new device", parts)
	}
	do(t, l.remove())
	if got := len(devices()); got != before {
		t.Errorf("%d devices after it has gone, %d before it came", got, before)
	}
}
