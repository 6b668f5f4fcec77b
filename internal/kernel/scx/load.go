package scx

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/ringbuf"
	"golang.org/x/sys/unix"
)

// Load loads the scheduler, waits until it runs, and returns. From then on the
// scheduler schedules all threads with the policy SCHED_EXT.
//
// Load returns ErrUnsupported if this kernel cannot run the scheduler, and
// ErrBusy if another scheduler is loaded.
func Load(o Options) (*Scheduler, error) {
	s, err := load(o)
	if err != nil {
		return nil, fmt.Errorf("load the BE scheduler: %w", err)
	}
	return s, nil
}

func load(o Options) (*Scheduler, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	layout, err := newLayout(o.Topology)
	if err != nil {
		return nil, err
	}
	types := btf.NewCache() // the kernel's types are large, so the cache is dropped after Load
	variant, err := probe(types)
	if err != nil {
		return nil, err
	}
	now, err := readLoaded(sysfs)
	if err != nil {
		return nil, err
	}
	if now.state != disabled {
		return nil, fmt.Errorf("%w: %q is %s", ErrBusy, now.ops, now.state)
	}
	s := &Scheduler{
		variant: variant, layout: layout, since: time.Now(), generation: 1, // the initial value in the program
		topology: o.Topology, events: make(chan Event, eventsKept), listened: make(chan struct{}), known: map[uint64]scheduler613ScxGroup{},
	}
	err = s.open(o, types, now.hotplugs)
	if err == nil {
		err = s.attach()
	}
	if err != nil {
		if s.reader != nil {
			err = errors.Join(err, s.reader.Close())
		}
		return nil, errors.Join(err, s.release())
	}
	go s.listen()
	return s, nil
}

// open adapts the programs to this machine and to the options, and loads them
// into the kernel.
func (s *Scheduler) open(o Options, types *btf.Cache, hotplugs uint64) error {
	spec, err := s.variant.spec()
	if err != nil {
		return err
	}
	if err := fit(spec, o, s.layout); err != nil {
		return err
	}
	kernel, err := types.Kernel()
	if err != nil {
		return fmt.Errorf("read the kernel's types: %w", err)
	}
	if err := setOps(spec.Maps[scheduler613MapTenon], o, hotplugs, enqueuesImmovable(kernel)); err != nil {
		return err
	}
	if s.kernel, err = ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{Cache: types}); err != nil {
		return fmt.Errorf("load the programs for Linux %s and later: %w", s.variant, err)
	}
	if s.view, err = newView(s.kernel, s.layout); err != nil {
		return err
	}
	if s.reader, err = ringbuf.NewReader(s.kernel.Maps[scheduler613MapEvents]); err != nil {
		return fmt.Errorf("map the event ring: %w", err)
	}
	if err := s.setParams(o.Params); err != nil {
		return err
	}
	return s.setPods(nil)
}

// fit sets the constants of the programs.
func fit(spec *ebpf.CollectionSpec, o Options, l *layout) error {
	for name, value := range map[string]any{
		scheduler613VarCgroupVersion: uint32(o.CgroupVersion),
		scheduler613VarCpuCount:      uint32(l.top),
		scheduler613VarShardCount:    uint32(len(l.shards)),
		scheduler613VarSilenceNs:     uint64(orDefault(o.Silence, time.Minute)),
		scheduler613VarPlaces:        &l.places,
		scheduler613VarSiblings:      &l.siblings,
		scheduler613VarRanges:        &l.ranges,
		scheduler613VarShardCpus:     &l.cpus,
		scheduler613VarNear:          &l.near,
	} {
		if err := spec.Variables[name].Set(value); err != nil {
			return fmt.Errorf("set %s: %w", name, err)
		}
	}
	for name, entries := range map[string]int{
		scheduler613MapCpus: l.top, scheduler613MapCores: l.top, scheduler613MapQueues: l.top,
		scheduler613MapLooks: l.top, scheduler613MapHolds: l.top,
		scheduler613MapShards: len(l.shards), scheduler613MapReapers: len(l.shards),
		scheduler613MapVtimes: len(l.shards) * Slots,
	} {
		spec.Maps[name].MaxEntries = uint32(entries)
	}
	events := spec.Maps[scheduler613MapEvents]
	events.MaxEntries = uint32(max(os.Getpagesize(), int(events.MaxEntries)))
	return nil
}

// enqMigrationDisabled (SCX_OPS_ENQ_MIGRATION_DISABLED, Linux 6.14) is a flag
// for threads that must not leave their CPU for now. With the flag, the
// scheduler decides about these threads, too. Without it, the kernel puts each
// of them into the queue of its CPU.
const enqMigrationDisabled = 1 << 4

// enqueuesImmovable reports whether the kernel supports enqMigrationDisabled. A
// kernel refuses flags that it does not know.
func enqueuesImmovable(kernel *btf.Spec) bool {
	var flags *btf.Enum
	if err := kernel.TypeByName("scx_ops_flags", &flags); err != nil {
		return false
	}
	for _, v := range flags.Values {
		if v.Name == "SCX_OPS_ENQ_MIGRATION_DISABLED" {
			return true
		}
	}
	return false
}

// setOps sets the numeric fields of the table of operations.
func setOps(ops *ebpf.MapSpec, o Options, hotplugs uint64, immovable bool) error {
	table, ok := btf.As[*btf.Struct](ops.Value)
	if !ok || len(ops.Contents) != 1 {
		return fmt.Errorf("the program has no table of operations")
	}
	data, ok := ops.Contents[0].Value.([]byte)
	if !ok {
		return fmt.Errorf("the table of operations is a %T", ops.Contents[0].Value)
	}
	for _, m := range table.Members {
		switch m.Name {
		case "timeout_ms":
			binary.NativeEndian.PutUint32(data[m.Offset.Bytes():], uint32(orDefault(o.Timeout, maxTimeout)/time.Millisecond))
		case "flags":
			if flags := data[m.Offset.Bytes():]; immovable {
				binary.NativeEndian.PutUint64(flags, binary.NativeEndian.Uint64(flags)|enqMigrationDisabled)
			}
		case "hotplug_seq": // without it, the kernel would not notice a hotplug since readLoaded
			binary.NativeEndian.PutUint64(data[m.Offset.Bytes():], hotplugs)
		}
	}
	return nil
}

// attach attaches the hook and then the scheduler, which needs the hook to know
// where LS runs.
func (s *Scheduler) attach() (err error) {
	s.hook, err = link.AttachTracing(link.TracingOptions{
		Program: s.kernel.Programs[scheduler613ProgTenonSwitched], AttachType: ebpf.AttachTraceRawTp,
	})
	if err != nil {
		return fmt.Errorf("attach to sched_switch: %w", err)
	}
	if err := switchEvery(s.topology); err != nil {
		return err
	}
	s.detaching.Store(false)
	s.number = 0
	s.ops, err = link.AttachStructOps(link.StructOpsOptions{Map: s.kernel.Maps[scheduler613MapTenon]})
	switch {
	case errors.Is(err, unix.EBUSY):
		return fmt.Errorf("attach to sched_ext: %w: %w", ErrBusy, err)
	case errors.Is(err, unix.EINVAL):
		return fmt.Errorf("attach to sched_ext: %w%s", err, invalidReason())
	case err != nil:
		return fmt.Errorf("attach to sched_ext: %w", err)
	}
	s.beat = time.Now() // ops.init has stored the same time
	return s.verify()
}

// prepare clears the state that an earlier run of the scheduler left.
func (s *Scheduler) prepare() error {
	if err := s.kernel.Variables[scheduler613VarEnd].Set(scheduler613ScxEnd{}); err != nil {
		return fmt.Errorf("clear the reason of the last end: %w", err)
	}
	// Clear the time of each CPU's last switch. Otherwise the time since then,
	// when the scheduler was detached, would count as run time of some class.
	at := int64(unsafe.Offsetof(s.view.cpu.Since))
	for _, c := range s.topology {
		if _, err := s.view.cpus.WriteAt(make([]byte, unsafe.Sizeof(s.view.cpu.Since)), int64(c.ID)*int64(unsafe.Sizeof(s.view.cpu))+at); err != nil {
			return fmt.Errorf("clear the time of the last switch of CPU %d: %w", c.ID, err)
		}
	}
	return nil
}

// invalidReason describes isolated CPUs, the only usual cause of EINVAL.
func invalidReason() string {
	isolated, err := os.ReadFile("/sys/devices/system/cpu/isolated")
	if err != nil || len(isolated) <= 1 {
		return ""
	}
	return fmt.Sprintf(" (CPUs %s are isolated by isolcpus=, and this kernel's sched_ext does not support that)", isolated[:len(isolated)-1])
}

// verify checks that the scheduler runs. The kernel may report success although
// the scheduler has already failed.
func (s *Scheduler) verify() error {
	now, err := readLoaded(sysfs)
	if err != nil {
		return err
	}
	end, err := s.readExit()
	if err != nil {
		return err
	}
	s.number = now.schedulers
	if now.state != enabled || !now.ours() || end.Kind != ExitNone {
		return fmt.Errorf("sched_ext attached the scheduler and then unloaded it: its state is %s with %q: %v", now.state, now.ops, end)
	}
	return nil
}
