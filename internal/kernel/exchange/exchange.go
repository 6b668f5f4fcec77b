// Package exchange loads the tracing programs bpf/exchange.bpf.c, which measure how
// long services take to answer requests over TCP: from the arrival of data at a
// socket to the first data that the service sends after it. The programs read
// lengths, sequence numbers and times, and never the data itself.
//
// The programs cost time at each segment of the node. Therefore they are attached
// only while a service is tracked, and they are pinned nowhere, so the kernel
// removes them when their process ends. The size of their memory is fixed, about
// 140 KB, besides 64 bytes of state for each connection at a tracked port.
//
// The programs need BTF and root, or CAP_BPF and CAP_PERFMON. The compiled programs
// are part of the sources, so a build of this package needs no BPF compiler.
package exchange

import (
	"errors"
	"fmt"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
)

//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -cc clang-19 -target bpfel -tags linux -type tenon_listen -type tenon_service -type tenon_exchange_limit exchange ../../../bpf/exchange.bpf.c -- -mcpu=v3 -Wall -Wextra -Wno-unused-parameter -Werror

var (
	// ErrUnsupported means that this kernel lacks something that the programs need.
	// The error that wraps it names the missing part.
	ErrUnsupported = errors.New("not supported by this kernel")
	// ErrClosed means that the probe, or the service, is closed.
	ErrClosed = errors.New("the probe is closed")
	// ErrFull means that Services services are tracked already.
	ErrFull = errors.New("the table of services is full")
)

// Services is the maximum number of services that can be tracked at a time.
const Services = int(exchangeTenonExchangeLimitTENON_SERVICES)

// Options are the parameters of Open.
type Options struct {
	// CgroupVersion is the version, 1 or 2, of the hierarchy with the cpu
	// controller. The ids that Track takes are those of this hierarchy.
	CgroupVersion int
}

// A Probe measures services from Track to Close. It is safe for concurrent use.
type Probe struct {
	seen    Hook
	objects *ebpf.Collection
	// answers is the program at the hook where data is sent.
	answers string

	mu       sync.Mutex // guards the fields below
	counters *ebpf.Memory
	hooks    []link.Link // empty while no service is tracked
	version  uint32
	epoch    uint32
	ports    portSet
	services map[exchangeTenonListen]*Service
	free     []uint32 // indices of services, in the order of use
	closed   bool
}

// A portSet has a bit for each port.
type portSet [exchangeTenonExchangeLimitTENON_PORT_WORDS]uint64

func (s *portSet) add(port uint32) { s[port/64] |= 1 << (port % 64) }

// Open loads the programs. They are attached only while a service is tracked. It
// returns an error that wraps ErrUnsupported if the kernel has none of the hooks.
func Open(o Options) (*Probe, error) {
	p, err := open(o)
	if err != nil {
		return nil, fmt.Errorf("open the probe of requests: %w", err)
	}
	return p, nil
}

func open(o Options) (*Probe, error) {
	if o.CgroupVersion != 1 && o.CgroupVersion != 2 {
		return nil, fmt.Errorf("cgroup version %d: want 1 or 2", o.CgroupVersion)
	}
	types := btf.NewCache() // the kernel's types are large, so the cache is dropped after Open
	kernel, err := types.Kernel()
	switch {
	case errors.Is(err, btf.ErrNotSupported):
		return nil, fmt.Errorf("read the kernel's types (CONFIG_DEBUG_INFO_BTF): %w: %w", ErrUnsupported, err)
	case err != nil:
		return nil, fmt.Errorf("read the kernel's types: %w", err)
	case !hasTracepoint(kernel, "tcp_probe"):
		return nil, fmt.Errorf("the tracepoint tcp_probe: %w", ErrUnsupported)
	}
	var absent, refused error
	for _, step := range ladder {
		if !step.exists(kernel) {
			absent = errors.Join(absent, fmt.Errorf("%s: %w", step.what, ErrUnsupported))
			continue
		}
		p, err := load(o, step, types)
		if err == nil {
			return p, nil
		}
		refused = errors.Join(refused, fmt.Errorf("load the program for %s: %w", step.what, err))
	}
	if refused != nil {
		return nil, refused
	}
	return nil, absent
}

// load loads the programs for one of the hooks at which data is sent.
func load(o Options, at step, types *btf.Cache) (*Probe, error) {
	spec, err := loadExchange()
	if err != nil {
		return nil, err
	}
	for _, other := range ladder {
		if other.hook != at.hook {
			delete(spec.Programs, other.program)
		}
	}
	if err := spec.Variables[exchangeVarCgroupVersion].Set(uint32(o.CgroupVersion)); err != nil {
		return nil, fmt.Errorf("set %s to %d: %w", exchangeVarCgroupVersion, o.CgroupVersion, err)
	}
	kernel, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{Cache: types})
	if err != nil {
		return nil, err
	}
	counters, err := kernel.Maps[exchangeMapServices].Memory()
	if err != nil {
		kernel.Close()
		return nil, fmt.Errorf("map the counters: %w", err)
	}
	p := &Probe{
		seen: at.hook, answers: at.program, objects: kernel, counters: counters, services: map[exchangeTenonListen]*Service{},
		// These are the initial values in the programs.
		version: 1, epoch: 1,
	}
	for i := range uint32(Services) {
		p.free = append(p.free, i)
	}
	return p, nil
}

// Hook returns where the probe sees that a service sends data.
func (p *Probe) Hook() Hook { return p.seen }

// changed gives the programs the set of ports. It attaches the programs if a service
// is tracked, and otherwise detaches them.
func (p *Probe) changed() error {
	var ports portSet
	added := false
	for key := range p.services {
		ports.add(key.Port)
	}
	for i := range ports {
		added = added || ports[i]&^p.ports[i] != 0
	}
	if added {
		// Until now the programs did not see all data of the connections at this port.
		p.epoch++
		if err := p.objects.Variables[exchangeVarEpoch].Set(p.epoch); err != nil {
			return fmt.Errorf("begin epoch %d: %w", p.epoch, err)
		}
	}
	p.ports = ports
	if err := p.objects.Variables[exchangeVarPorts].Set(ports); err != nil {
		return fmt.Errorf("set the ports: %w", err)
	}
	p.version++
	if err := p.objects.Variables[exchangeVarGeneration].Set(p.version); err != nil {
		return fmt.Errorf("begin generation %d: %w", p.version, err)
	}
	switch {
	case len(p.services) == 0:
		return p.detach()
	case len(p.hooks) == 0:
		return p.attach()
	}
	return nil
}

func (p *Probe) attach() error {
	for _, name := range []string{exchangeProgTenonArrived, p.answers} {
		hook, err := link.AttachTracing(link.TracingOptions{Program: p.objects.Programs[name]})
		if err != nil {
			return errors.Join(fmt.Errorf("attach %s: %w", name, err), p.detach())
		}
		p.hooks = append(p.hooks, hook)
	}
	return nil
}

func (p *Probe) detach() error {
	var errs []error
	for _, hook := range p.hooks {
		errs = append(errs, hook.Close())
	}
	p.hooks = nil
	return errors.Join(errs...)
}

// Close detaches the programs and frees their memory. Services need not be closed
// before.
func (p *Probe) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil
	}
	p.closed = true
	err := p.detach()
	p.objects.Close()
	return err
}
