package scrape

import (
	"context"
	"errors"
	"sync"
	"time"

	"tenon.sh/tenon/internal/kernel/exchange"
	"tenon.sh/tenon/internal/model/node"
)

// againAfter is the time after which the probe is loaded again if that has failed.
// Each attempt reads all types of the kernel.
const againAfter = 10 * time.Minute

// A meter measures services at their sockets. Package exchange implements it.
type meter interface {
	Track(cgroup uint64, port int, bounds []time.Duration) (*exchange.Service, error)
	Close() error
}

// A probe is the meter of a node. It is in the kernel only while a service needs it.
type probe struct {
	mu      sync.Mutex
	meter   meter // nil: not loaded
	users   int
	load    func(exchange.Options) (meter, error) // nil: exchange.Open
	refused error                                 // the error of the last attempt, at this time
	at      time.Time
}

func openMeter(o exchange.Options) (meter, error) {
	p, err := exchange.Open(o)
	if err != nil {
		return nil, err
	}
	return p, nil
}

// begin starts to measure a service. It loads the meter for the first one.
func (p *probe) begin(o exchange.Options, t Target) (*exchange.Service, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.meter == nil {
		if p.refused != nil && time.Since(p.at) < againAfter {
			return nil, p.refused
		}
		load := p.load
		if load == nil {
			load = openMeter
		}
		if p.meter, p.refused = load(o); p.refused != nil {
			p.meter, p.at = nil, time.Now()
			return nil, p.refused
		}
	}
	s, err := p.meter.Track(t.Cgroup, t.Want.Port, exchange.Bounds(t.Want.Within[:]...))
	if err == nil {
		p.users++
	}
	return s, errors.Join(err, p.endUnused())
}

// end stops measuring a service. It removes the meter after the last one.
func (p *probe) end(s *exchange.Service) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.users--
	return errors.Join(s.Close(), p.endUnused())
}

func (p *probe) endUnused() error {
	if p.users > 0 {
		return nil
	}
	m := p.meter
	p.meter = nil
	return m.Close()
}

// A socket reads a service that the probe measures.
type socket struct {
	target  Target
	readers *Readers
	service *exchange.Service // nil: not measured yet
	failed  string            // the last error that was logged
}

func (s *socket) read(context.Context) node.Requests {
	if s.service == nil {
		service, err := s.readers.probe.begin(exchange.Options{CgroupVersion: s.readers.CgroupVersion}, s.target)
		if err != nil {
			return s.fail(err)
		}
		s.service = service
	}
	got, err := s.service.Read()
	if err != nil {
		return s.fail(err)
	}
	s.failed = ""
	return node.Requests{Bounds: got.Bounds, Counts: got.Counts, Unsure: got.Unsure()}
}

// fail logs an error once, and returns its code.
func (s *socket) fail(err error) node.Requests {
	if text := err.Error(); text != s.failed {
		s.failed = text
		if s.readers.Log != nil {
			s.readers.Log.Warn("the requests of a service are not measured at its sockets", "workload", s.target.Workload, "error", err)
		}
	}
	switch {
	case errors.Is(err, exchange.ErrUnsupported):
		return node.Requests{Trouble: node.TroubleNoHook}
	case errors.Is(err, exchange.ErrFull):
		return node.Requests{Trouble: node.TroubleTooMany}
	}
	return node.Requests{Trouble: node.TroubleProbe}
}

func (s *socket) leave() {
	if s.service == nil {
		return
	}
	if err := s.readers.probe.end(s.service); err != nil {
		s.fail(err)
	}
}
