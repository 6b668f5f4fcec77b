package meter

import (
	"context"
	"errors"
	"time"
)

// Period is the time between two readings of a run. It is long because the
// lab runs on the CPUs of the jobs.
const Period = 200 * time.Millisecond

// A Reader reads the counters of one cgroup, such as a [Meter].
type Reader interface{ Read() (Reading, error) }

// During calls a function (do). It reads the counters before the call, during it,
// and after it, and returns the first and the last reading of each reader.
func During[R Reader](ctx context.Context, readers []R, do func(context.Context) error) (from, to []Reading, err error) {
	readAll := func() ([]Reading, error) {
		all := make([]Reading, len(readers))
		for i, m := range readers {
			var err error
			if all[i], err = m.Read(); err != nil {
				return nil, err
			}
		}
		return all, nil
	}
	if from, err = readAll(); err != nil {
		return nil, nil, err
	}
	done := make(chan error, 1)
	doing, stop := context.WithCancel(ctx)
	defer stop()
	go func() { done <- do(doing) }()
	ticker := time.NewTicker(Period)
	defer ticker.Stop()
	for {
		select {
		case err := <-done:
			if err != nil {
				return nil, nil, err
			}
			to, err = readAll()
			return from, to, err
		case <-ticker.C:
			if _, err := readAll(); err != nil {
				stop()
				return nil, nil, errors.Join(err, <-done)
			}
		}
	}
}
