package harness

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"time"

	"tenon.sh/tenon/internal/lab/load"
	"tenon.sh/tenon/internal/lab/load/wrk"
	"tenon.sh/tenon/internal/lab/testbed"
)

// A Measurement is the client's result for one load, with the CPU use during
// the load.
type Measurement struct {
	Client   *load.Result // nil with wrk
	Wrk      *wrk.Result  // nil without wrk
	From     time.Time
	To       time.Time
	Warmup   time.Duration
	drifts   bool // the latency never became stationary
	Used     Spent
	Readings []Reading
	noPSI    bool
	tested   int // number of tested CPUs
}

// A Counter reads counters during a run.
type Counter interface {
	// Run drops earlier readings, and takes new ones until ctx ends. After
	// that, it takes a last one.
	Run(ctx context.Context)
	// Collect returns the readings so far.
	Collect() ([]Reading, error)
	// Capacity returns the number of tested CPUs.
	Capacity() int
	// HasPSI reports whether the readings have the pressure on the CPU.
	HasPSI() bool
}

// Watch takes readings while the load runs. If the service ends, Watch stops the load.
func Watch(ctx context.Context, s Counter, service *testbed.Process, load func(context.Context) (Measurement, error)) (m Measurement, err error) {
	// A garbage collection of the lab during the run would disturb the client.
	// Therefore collect now.
	runtime.GC()
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(512 << 20))
	sampling, stopSampling := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Run(sampling)
	}()
	loading, stopLoading := context.WithCancelCause(ctx)
	go func() {
		select {
		case <-loading.Done():
		case <-service.Done():
			stopLoading(fmt.Errorf("%s ended during a run: %w", service.Name, errors.Join(service.Err(), service.EndedEarly())))
		}
	}()
	m, err = load(loading)
	if errors.Is(err, context.Canceled) && ctx.Err() == nil { // the service ended
		err = context.Cause(loading)
	}
	stopLoading(nil)
	stopSampling()
	<-done
	if err != nil {
		return m, err
	}
	return m, m.count(s)
}

// count adds how the counters changed in the measured part.
func (m *Measurement) count(s Counter) (err error) {
	if m.Readings, err = s.Collect(); err != nil {
		return fmt.Errorf("read the counters of a run: %w", err)
	}
	m.noPSI, m.tested = !s.HasPSI(), s.Capacity()
	m.Used = Between(ReadingAt(m.Readings, m.From), ReadingAt(m.Readings, m.To), m.tested)
	if m.Used.Wall <= 0 {
		return errors.New("read the counters of a run: no reading lies in its measured part")
	}
	return nil
}

// EndWarmup makes the warm-up exactly as long as asked. It is for runs whose mode
// changes within the run: the search for the end of the warm-up would take a change
// of the mode for it.
func (m *Measurement) EndWarmup(asked time.Duration) error {
	if err := m.Client.Discard(asked); err != nil {
		return err
	}
	m.Warmup, m.drifts = m.Client.Warmup, false
	m.From = m.Client.Started.Add(m.Warmup)
	m.To = m.From.Add(m.Client.Length)
	return nil
}

// Part returns the measurement of the time between two readings of the run. The
// latencies are those of the whole intervals of the load in it.
func (m Measurement) Part(from, to Reading) (Measurement, error) {
	client, err := m.Client.Part(from.At, to.At)
	return Measurement{
		Client: client, From: from.At, To: to.At, Used: Between(from, to, m.tested), noPSI: m.noPSI, tested: m.tested,
	}, err
}

// WatchAlone takes readings while batch work runs without a service.
func WatchAlone(ctx context.Context, s Counter, warmup, length time.Duration) (m Measurement, err error) {
	m.Warmup = warmup
	if err := testbed.Pause(ctx, warmup); err != nil {
		return m, err
	}
	sampling, stop := context.WithTimeout(ctx, length)
	defer stop()
	s.Run(sampling)
	if err := ctx.Err(); err != nil {
		return m, err
	}
	course, err := s.Collect()
	if err == nil && len(course) == 0 {
		err = errors.New("there is none")
	}
	if err != nil {
		return m, fmt.Errorf("read the counters of a run: %w", err)
	}
	m.From, m.To = course[0].At, course[len(course)-1].At
	return m, m.count(s)
}

// LoadOpen sends an open-loop load to the service.
func LoadOpen(ctx context.Context, s *testbed.Site, order load.Config) (m Measurement, err error) {
	r, err := sendLoad(ctx, s, order)
	if err != nil {
		return m, err
	}
	return Loaded(r, order)
}

// Loaded makes the measurement of an open-loop run. The measurement begins at
// the end of the warm-up, and Loaded finds that end in the result.
func Loaded(r *load.Result, order load.Config) (m Measurement, err error) {
	m.Client = r
	if m.drifts, err = settle(m.Client, order.Warmup); err != nil {
		return m, err
	}
	m.Warmup = m.Client.Warmup
	m.From = m.Client.Started.Add(m.Client.Warmup)
	m.To = m.From.Add(m.Client.Length)
	return m, nil
}
