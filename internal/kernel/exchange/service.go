package exchange

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
)

// A Service is a port inside of a cgroup and all cgroups below it.
type Service struct {
	probe  *Probe
	key    exchangeTenonListen
	index  uint32
	bounds []time.Duration
	unseen uint64 // the counter of the kernel when the service was tracked
	closed bool
}

// maxBounds is the maximum number of bounds of a histogram. The last bucket has none.
const maxBounds = int(exchangeTenonExchangeLimitTENON_PARTS) - 1

// Bounds returns bounds for Track: ten to each power of ten from 10 µs to 100 s, and
// each of the targets, so that a histogram decides exactly how much was longer.
func Bounds(targets ...time.Duration) []time.Duration {
	var all []time.Duration
	for unit := time.Microsecond; unit < 10*time.Second; unit *= 10 {
		for _, tenths := range []time.Duration{10, 12, 15, 20, 25, 30, 40, 50, 60, 80} {
			all = append(all, tenths*unit)
		}
	}
	all = append(all, 100*time.Second)
	for _, t := range targets {
		if t > 0 {
			all = append(all, t)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// Track measures the exchanges at a local port, by IPv4 and IPv6, of the threads in
// a cgroup and all cgroups below it, except those that have the port as a service
// of their own. The id is the inode number of the cgroup's directory in the
// hierarchy of the cpu controller. bounds are the upper bounds of the buckets, in
// ascending order. A later call for the same cgroup and port takes over from an
// earlier one, whose service then counts no more.
//
// An exchange counts when the first data of the answer is sent. An answer to a
// request that came before Track is among those that cannot be told.
func (p *Probe) Track(cgroupID uint64, port int, bounds []time.Duration) (*Service, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s, err := p.track(cgroupID, port, bounds)
	if err != nil {
		return nil, fmt.Errorf("measure port %d of cgroup %d: %w", port, cgroupID, err)
	}
	return s, nil
}

func (p *Probe) track(cgroupID uint64, port int, bounds []time.Duration) (*Service, error) {
	switch {
	case p.closed:
		return nil, ErrClosed
	case port < 1 || port > math.MaxUint16:
		return nil, errors.New("want a port from 1 to 65535")
	case len(bounds) == 0 || len(bounds) > maxBounds || !slices.IsSorted(bounds) || bounds[0] <= 0:
		return nil, fmt.Errorf("%d bounds: want 1 to %d in ascending order above 0", len(bounds), maxBounds)
	case len(p.free) == 0:
		return nil, fmt.Errorf("%w: it has %d entries", ErrFull, Services)
	}
	s := &Service{
		probe: p, key: exchangeTenonListen{Cgroup: cgroupID, Port: uint32(port)}, index: p.free[0], bounds: slices.Clone(bounds),
	}
	var begin exchangeTenonService
	for i := range begin.Bounds {
		begin.Bounds[i] = math.MaxUint64
		if i < len(bounds) {
			begin.Bounds[i] = uint64(bounds[i])
		}
	}
	if err := p.objects.Variables[exchangeVarUnseen].Get(&s.unseen); err != nil {
		return nil, fmt.Errorf("read what was not seen: %w", err)
	}
	if err := p.objects.Maps[exchangeMapServices].Put(s.index, begin); err != nil {
		return nil, fmt.Errorf("begin the histogram: %w", err)
	}
	if err := p.objects.Maps[exchangeMapListens].Put(s.key, s.index+1); err != nil {
		return nil, fmt.Errorf("add to the table of %d services: %w", Services, err)
	}
	p.free = p.free[1:]
	p.services[s.key] = s
	if err := p.changed(); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

// Close ends the measurement of a service.
func (s *Service) Close() error {
	s.probe.mu.Lock()
	defer s.probe.mu.Unlock()
	if err := s.close(); err != nil {
		return fmt.Errorf("stop measuring port %d of cgroup %d: %w", s.key.Port, s.key.Cgroup, err)
	}
	return nil
}

func (s *Service) close() error {
	p := s.probe
	if s.closed || p.closed {
		return nil
	}
	s.closed = true
	p.free = append(p.free, s.index)
	if p.services[s.key] != s { // another one has taken over
		return nil
	}
	delete(p.services, s.key)
	err := p.objects.Maps[exchangeMapListens].Delete(s.key)
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		err = nil
	}
	return errors.Join(err, p.changed())
}

// A Reading holds the counts of a service since Track. They never decrease.
type Reading struct {
	// Bounds are the upper bounds of the buckets. Counts are the exchanges in each
	// bucket and, in one bucket more, the longer ones.
	Bounds []time.Duration
	Counts []uint64
	// These are in no bucket, because it cannot be told which request was answered
	// when. Overlapped are answers to data that came at different times, such as
	// requests of HTTP/2 streams. Unasked are pieces of data that the service sent
	// without a request, or long after the last piece. Missed are those of which the
	// programs did not see the begin or the end, because the kernel skips a run where
	// another run of the program was interrupted. Unseen is data at connections of any
	// service for which the kernel had no memory.
	Overlapped, Unasked, Missed, Unseen uint64
}

// Unsure returns how often the probe could not tell.
func (r Reading) Unsure() uint64 { return r.Overlapped + r.Unasked + r.Missed + r.Unseen }

// Read reads the counts. It copies mapped memory, without a system call. The kernel
// may count meanwhile, so the sum of the counts is that of no exact moment.
func (s *Service) Read() (Reading, error) {
	s.probe.mu.Lock()
	defer s.probe.mu.Unlock()
	r, err := s.read()
	if err != nil {
		return Reading{}, fmt.Errorf("read the requests at port %d of cgroup %d: %w", s.key.Port, s.key.Cgroup, err)
	}
	return r, nil
}

func (s *Service) read() (Reading, error) {
	p := s.probe
	if s.closed || p.closed {
		return Reading{}, ErrClosed
	}
	var now exchangeTenonService
	size := unsafe.Sizeof(now)
	if _, err := p.counters.ReadAt(unsafe.Slice((*byte)(unsafe.Pointer(&now)), size), int64(s.index)*int64(size)); err != nil {
		return Reading{}, err
	}
	var unseen uint64
	if err := p.objects.Variables[exchangeVarUnseen].Get(&unseen); err != nil {
		return Reading{}, err
	}
	return Reading{
		Bounds: s.bounds, Counts: slices.Clone(now.Counts[:len(s.bounds)+1]),
		Overlapped: now.Overlapped, Unasked: now.Unasked, Missed: now.Missed, Unseen: unseen - s.unseen,
	}, nil
}
