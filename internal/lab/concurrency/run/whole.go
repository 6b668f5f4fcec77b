package run

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"tenon.sh/tenon/internal/lab/jobs"
	"tenon.sh/tenon/internal/lab/meter"
	"tenon.sh/tenon/internal/lab/testbed"
	"tenon.sh/tenon/internal/model/node"
)

// A queue runs whole jobs. When a job of the cell ends, another one begins in
// the same slot or in the next free one.
type queue struct {
	r    *round
	free chan *slot // slots without a job; nil: each job has its own slot

	mu       sync.Mutex
	open     bool           // jobs that begin now count
	pending  sync.WaitGroup // jobs that count and have not ended
	rows     []jobs.Job     // the jobs that count, and the jobs that failed
	ended    int            // jobs that count and have ended
	counted  map[int]bool   // numbers of the jobs of the cell that have counted at least once
	complete chan struct{}
	err      error
}

// wholeJobs runs jobs to their end, in as many sequences as the cell has jobs.
// With the fill Wave, each sequence has one job. With Steady, the jobs of a
// sequence follow each other, and those that begin in the window count. The
// window ends only after a job that counts has begun in each sequence.
func (r *round) wholeJobs(ctx context.Context) ([]jobs.Job, error) {
	for _, s := range r.slots {
		if err := s.hold(); err != nil {
			return nil, err
		}
	}
	q := &queue{r: r, counted: map[int]bool{}, complete: make(chan struct{}), open: r.Fill == Wave}
	if r.div.waiting {
		q.free = make(chan *slot, len(r.slots))
		for _, s := range r.slots {
			q.free <- s
		}
	}
	disturbances, err := r.watch()
	if err != nil {
		return nil, err
	}
	user := ctx
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var clients sync.WaitGroup
	for i := range r.cell.Jobs {
		clients.Go(func() {
			for q.runJob(ctx, i) && r.Fill != Wave {
			}
			if ctx.Err() == nil && r.Fill != Wave {
				stop() // a fault ends the run
			}
		})
	}
	if r.Fill != Wave {
		q.count(ctx)
		stop()
	}
	clients.Wait()
	if err := cmp.Or(user.Err(), q.err); err != nil {
		return nil, err
	}
	r.void, err = disturbances()
	if q.ended < r.cell.Jobs {
		r.void = append(r.void, fmt.Sprintf("only %d of %d jobs ended in the measured part", q.ended, r.cell.Jobs))
	}
	return q.rows, err
}

// count opens and closes the window, and waits for the jobs in it.
func (q *queue) count(ctx context.Context) {
	if testbed.Pause(ctx, q.r.Warmup) != nil {
		return
	}
	q.mu.Lock()
	q.open = true
	q.mu.Unlock()
	if testbed.Pause(ctx, q.r.Window) != nil {
		return
	}
	select {
	case <-q.complete:
	case <-ctx.Done():
		return
	}
	q.mu.Lock()
	q.open = false
	q.mu.Unlock()
	done := make(chan struct{})
	go func() {
		q.pending.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// begin reports whether a job that begins now counts.
func (q *queue) begin(number int) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.open {
		return false
	}
	q.pending.Add(1)
	q.counted[number] = true
	if len(q.counted) == q.r.cell.Jobs {
		select {
		case <-q.complete:
		default:
			close(q.complete)
		}
	}
	return true
}

// runJob runs one job to its end. It returns false if no other job must follow.
func (q *queue) runJob(ctx context.Context, number int) bool {
	asked := time.Now()
	counts := q.begin(number)
	if counts {
		defer q.pending.Done()
	}
	var s *slot
	if q.free == nil {
		s = q.r.slots[number]
	} else {
		select {
		case s = <-q.free:
			defer func() { q.free <- s }()
		case <-ctx.Done():
			return false
		}
	}
	row, err := q.job(ctx, s, number, asked)
	if ctx.Err() != nil {
		return false
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if err != nil {
		q.err = err
		return false
	}
	q.end(row, counts)
	return row.Extra.Void == ""
}

// end records a job that has ended. If the job failed, the run is void, even if
// the job does not count. The caller holds q.mu.
func (q *queue) end(row jobs.Job, counts bool) {
	if counts {
		q.ended++
	}
	if counts || row.Extra.Void != "" {
		q.rows = append(q.rows, row)
	}
}

// job runs a job in a slot and describes it.
func (q *queue) job(ctx context.Context, s *slot, number int, asked time.Time) (jobs.Job, error) {
	defer s.end()
	from, to, err := meter.During(ctx, []*slot{s}, func(ctx context.Context) error {
		if err := s.start(number, q.r.cell.Threads, q.r.whole); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.process.Done():
			return nil
		}
	})
	if err != nil {
		return jobs.Job{}, err
	}
	row := q.r.row(s, number, from[0], to[0])
	row.In, row.Extra.QueueSeconds = asked.UTC(), node.Some(from[0].At.Sub(asked).Seconds())
	if q.r.Fill != Wave {
		row.Extra.LocalJobs = node.Some(float64(q.r.cell.Jobs))
	}
	if q.r.whole > 0 {
		row.Extra.Work = node.Some(q.r.whole)
	}
	if err := s.process.Err(); err != nil {
		row.Extra.Void = err.Error()
	}
	return row, nil
}
