package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"tenon.sh/tenon/internal/node"
)

// A batch is the running ffmpeg processes.
type batch struct {
	processes []*Process
	marks     []*Marks
}

// startBatch starts the batch work in its group, paced to rate seconds of
// media per second and process; 0: unpaced.
func (b *bench) startBatch(group node.CgroupPath, rate float64) (*batch, error) {
	t := Transcode{Input: b.input, Threads: b.threads, ReadRate: rate}
	if b.ffmpegVersion.AtLeast(4, 4) && b.Duration < 10*time.Second {
		t.Period = samplePeriod
	}
	w := &batch{}
	for i := range b.processes {
		r, out := io.Pipe()
		m := &Marks{}
		p, err := start(b.host, child{
			name: fmt.Sprintf("ffmpeg %d", i+1), argv: append([]string{b.ffmpegPath}, t.Args()...),
			group: group, cpus: b.place.Tested, stdout: out,
		})
		if err != nil {
			out.Close()
			w.stop()
			return nil, err
		}
		go func() {
			_ = m.Follow(r, time.Now)
			_, _ = io.Copy(io.Discard, r) // a report that cannot be read must not stop ffmpeg
		}()
		go func() {
			<-p.Done()
			out.Close()
		}()
		w.processes, w.marks = append(w.processes, p), append(w.marks, m)
	}
	return w, nil
}

// encoding waits until every process has encoded a frame.
func (w *batch) encoding(ctx context.Context) error {
	deadline := time.Now().Add(60 * time.Second)
	for i := 0; i < len(w.marks); {
		switch {
		case w.marks[i].Started():
			i++
			continue
		case w.processes[i].Ended():
			return errors.Join(w.processes[i].Err(), w.processes[i].endedEarly())
		case time.Now().After(deadline):
			return fmt.Errorf("%s has not encoded a frame in a minute", w.processes[i].Name)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
	return nil
}

// died is the error of the first process that has ended; nil while all run.
func (w *batch) died() error {
	if w == nil {
		return nil
	}
	for _, p := range w.processes {
		if p.Ended() {
			return errors.Join(p.Err(), p.endedEarly())
		}
	}
	return nil
}

// between is the progress of all processes together.
func (w *batch) between(from, to time.Time) (frames float64, media time.Duration) {
	if w == nil {
		return 0, 0
	}
	for _, m := range w.marks {
		f, d := m.Between(from, to)
		frames, media = frames+f, media+d
	}
	return frames, media
}

// stop ends the batch work. Nothing of it is worth keeping.
func (w *batch) stop() {
	if w == nil {
		return
	}
	for _, p := range w.processes {
		p.Kill()
	}
}
