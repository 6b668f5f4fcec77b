package lab

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"time"

	"tenon.sh/tenon/internal/lab/load"
)

// A stage is everything that runs in one mode, ready to be measured.
type stage struct {
	b        *bench
	pods     pods
	spinner  *Process
	nginx    *Process
	work     *batch
	governor *governor
	sampler  *sampler
}

// stage sets a mode up: cgroups as kubelet would make them, the service, the
// batch work, and Tenon where the mode has it. It returns when the service
// answers and every batch process encodes.
func (b *bench) stage(ctx context.Context, t traits, rate float64) (st *stage, err error) {
	st = &stage{b: b, pods: pods{root: b.Root, burstable: t.burstable, tested: b.place.Tested}}
	defer func() {
		if err != nil {
			st, err = nil, st.close(err)
		}
	}()
	if err := st.pods.build(b.host, b.tree); err != nil {
		return st, err
	}
	if t.spinner {
		if err := st.pods.buildSpinner(b.host, b.tree); err != nil {
			return st, err
		}
		if st.spinner, err = b.spin(st.pods); err != nil {
			return st, err
		}
	}
	st.sampler = &sampler{tree: b.tree, fs: b.fs, tested: b.place.Tested, service: st.pods.nginxPod()}
	if t.batch {
		st.sampler.batch, st.sampler.meet = st.pods.jobPod(), st.pods.batch()
	}
	if t.spinner {
		st.sampler.spinner = st.pods.spinner()
	}
	if !t.alone {
		if st.nginx, err = b.nginx.Start(ctx, b.host, st.pods.nginx(), b.place.Tested); err != nil {
			return st, err
		}
		if st.sampler.ls, err = b.tree.Procs(string(st.pods.nginx())); err != nil {
			return st, err
		}
	}
	if t.batch {
		if st.work, err = b.startBatch(st.pods.jobGroup(), rate); err != nil {
			return st, err
		}
	}
	if t.tenon {
		if st.governor, err = b.govern(ctx, st.pods, t); err != nil {
			return st, err
		}
	}
	if st.work != nil {
		if err := st.work.encoding(ctx); err != nil {
			return st, err
		}
	}
	return st, nil
}

// close ends everything of the stage and removes its cgroups.
func (st *stage) close(err error) error {
	err = errors.Join(err, st.governor.stop())
	st.work.stop()
	if st.spinner != nil {
		st.spinner.Kill()
	}
	if st.nginx != nil {
		st.b.nginx.Stop(st.nginx)
	}
	return errors.Join(err, clear(st.b.Root, st.b.host, st.b.tree))
}

// A measurement is one load on a stage, and what it cost.
type measurement struct {
	client *load.Result    // nil with wrk
	wrk    *load.WrkResult // nil without
	from   time.Time
	to     time.Time
	warmup time.Duration
	drifts bool // latency never became stationary
	used   spent
	course []reading
}

// measure puts the load on the stage.
func (st *stage) measure(ctx context.Context, order load.Config) (measurement, error) {
	return watch(ctx, st.sampler, st.nginx, func(ctx context.Context) (measurement, error) {
		if st.b.Client == ClientWrk {
			return st.loadWrk(ctx, order)
		}
		return st.b.loadOpen(ctx, order)
	})
}

// A counter takes readings of a run along its course.
type counter interface {
	// run forgets earlier readings, and reads until ctx ends and once more then.
	run(ctx context.Context)
	// course returns the readings so far.
	course() ([]reading, error)
	// capacity is the number of CPUs that are tested.
	capacity() int
}

// watch takes readings while load runs, and ends load if the service ends.
func watch(ctx context.Context, s counter, service *Process, load func(context.Context) (measurement, error)) (m measurement, err error) {
	// A collection of the lab's own garbage would disturb the client.
	runtime.GC()
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(512 << 20))
	sampling, stopSampling := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.run(sampling)
	}()
	loading, stopLoading := context.WithCancelCause(ctx)
	go func() {
		select {
		case <-loading.Done():
		case <-service.Done():
			stopLoading(fmt.Errorf("%s ended during a run: %w", service.Name, errors.Join(service.Err(), service.endedEarly())))
		}
	}()
	m, err = load(loading)
	if errors.Is(err, context.Canceled) {
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

// count takes from the course what falls into the measurement.
func (m *measurement) count(s counter) (err error) {
	if m.course, err = s.course(); err != nil {
		return fmt.Errorf("read the counters of a run: %w", err)
	}
	m.used = between(readingAt(m.course, m.from), readingAt(m.course, m.to), s.capacity())
	if m.used.wall <= 0 {
		return errors.New("read the counters of a run: no reading falls into it")
	}
	return nil
}

// measureAlone watches the stage without any load on it.
func (st *stage) measureAlone(ctx context.Context, warmup, length time.Duration) (measurement, error) {
	return watchAlone(ctx, st.sampler, warmup, length)
}

// watchAlone takes readings of batch work without a service.
func watchAlone(ctx context.Context, s counter, warmup, length time.Duration) (m measurement, err error) {
	m.warmup = warmup
	wait := func(d time.Duration) error {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(d):
			return nil
		}
	}
	if err := wait(warmup); err != nil {
		return m, err
	}
	sampling, stop := context.WithTimeout(ctx, length)
	defer stop()
	s.run(sampling)
	if err := ctx.Err(); err != nil {
		return m, err
	}
	course, err := s.course()
	if err == nil && len(course) == 0 {
		err = errors.New("there is none")
	}
	if err != nil {
		return m, fmt.Errorf("read the counters of a run: %w", err)
	}
	m.from, m.to = course[0].at, course[len(course)-1].at
	return m, m.count(s)
}

// loadOpen puts an open load on the service.
func (s *site) loadOpen(ctx context.Context, order load.Config) (m measurement, err error) {
	if m.client, err = s.load(ctx, order); err != nil {
		return m, err
	}
	if m.drifts, err = settle(m.client, order.Warmup); err != nil {
		return m, err
	}
	m.warmup = m.client.Warmup
	m.from = m.client.Started.Add(m.client.Warmup)
	m.to = m.from.Add(m.client.Length)
	return m, nil
}

// loadWrk warms up with one wrk and measures with the next: wrk itself knows
// no warm-up.
func (st *stage) loadWrk(ctx context.Context, order load.Config) (m measurement, err error) {
	m.warmup = max(order.Warmup.Round(time.Second), time.Second)
	if _, err := st.b.wrk(ctx, m.warmup); err != nil {
		return m, err
	}
	m.from = time.Now()
	if m.wrk, err = st.b.wrk(ctx, max(order.Duration, time.Second)); err != nil {
		return m, err
	}
	m.to = time.Now()
	return m, nil
}
