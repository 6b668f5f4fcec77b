package run

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"tenon.sh/tenon/internal/lab/concurrency"
	"tenon.sh/tenon/internal/lab/testbed"
	"tenon.sh/tenon/internal/lab/work"
	"tenon.sh/tenon/internal/model/node"
)

// machine is the experiment on this machine, after its set-up.
type machine struct {
	bench
	hardware hardware
	task     task
	host     string // name of this machine
}

// enterMachine prepares the experiment on this machine, and finds the program. If
// it fails, it restores the machine.
func enterMachine(ctx context.Context, c Config) (_ site, err error) {
	b := &machine{bench: bench{Config: c, versions: map[string]string{}}}
	if b.Site, err = testbed.Enter(ctx, c.Setting); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.Close())
		}
	}()
	if b.host, err = os.Hostname(); err != nil {
		return nil, fmt.Errorf("read the name of this machine: %w", err)
	}
	memory, err := b.FS.MemInfo()
	if err != nil {
		return nil, err
	}
	b.hardware = hardwareOf(b.Topology, b.Place.Tested, memory.Total)
	if len(c.Argv) > 0 {
		b.task = command{c.Argv}
		return b, nil
	}
	t := transcode{height: c.Height, input: c.Input}
	if t.height == 0 {
		t.height = heightFor(b.Place.Tested.Len())
	}
	if t.ffmpeg, err = work.FFmpegProgram.Find(); err != nil {
		return nil, err
	}
	version, text, err := work.FFmpegProgram.Ask(ctx, t.ffmpeg)
	if err != nil {
		return nil, err
	}
	b.versions["ffmpeg"], t.period = text, version.AtLeast(4, 4)
	if err = work.CheckEncoder(ctx, t.ffmpeg); err != nil {
		return nil, err
	}
	if t.input == "" {
		t.input, err = work.Clip(ctx, t.ffmpeg, c.CacheDir, func() { b.Status.Now("rendering the clip, once for this machine") })
	} else if _, err = os.Stat(t.input); err == nil {
		t.input, err = filepath.Abs(t.input)
	}
	if err != nil {
		return nil, fmt.Errorf("--input: %w", err)
	}
	t.name, b.task = filepath.Base(t.input), t
	return b, nil
}

func (b *machine) length() time.Duration   { return b.Warmup + b.Window + 1500*time.Millisecond }
func (b *machine) refuse(cell Cell) string { return b.Config.refuse(cell, b.hardware) }

// calibrate runs one job alone to choose how much work a job has.
func (b *machine) calibrate(ctx context.Context) (lines []string, err error) {
	b.Status.Now("calibrating: one job alone")
	if b.task.reports() {
		endless := *b
		endless.Fill = Window
		r, err := endless.measure(ctx, Reference, 0, 0)
		if err != nil {
			return nil, err
		}
		row := r.Rows[0]
		rate := row.Extra.Work.Or(0) / row.Extra.CPUSeconds.Or(0)
		if !(rate > 0) {
			return nil, fmt.Errorf("a job alone has done no work in %v: is %s a film?", b.Window, b.task.source())
		}
		b.whole = max(float64(int(rate*b.Work.Seconds())), 1)
		lines = append(lines, fmt.Sprintf("a job is %.0f frames: about %v of CPU time, alone; it uses %.2f of %d CPUs", b.whole, b.Work, row.Extra.CPUSeconds.Or(0)/row.Duration().Seconds(), b.Place.Tested.Len()))
	} else {
		one := *b
		one.Fill = Wave
		r, err := one.measure(ctx, Reference, 0, 0)
		if err != nil {
			return nil, err
		}
		row := r.Rows[0]
		if row.Extra.Void != "" {
			return nil, fmt.Errorf("a job alone failed: %s", row.Extra.Void)
		}
		lines = append(lines, fmt.Sprintf("a job alone takes %.2f s and %.2f s of CPU time", row.Duration().Seconds(), row.Extra.CPUSeconds.Or(0)))
	}
	return lines, nil
}

func (b *machine) describe(e *concurrency.Experiment) {
	e.Machine = testbed.Describe(b.FS, b.Topology, b.Host.Capabilities(), b.Tree.Version())
	e.Machine.Mechanisms = nil
	cores := map[node.CoreID]bool{}
	for _, c := range b.Topology.CPUs {
		if b.Place.Tested.Has(c.ID) {
			cores[c.Core] = true
		}
	}
	b.caveats = append(b.caveats, "the lab itself runs on the tested CPUs, and reads the counters five times a second")
	job := b.task
	if t, is := job.(transcode); is {
		t.input = t.name // the directory may name the user
		job = t
	}
	e.Node = concurrency.Node{CPUs: b.Place.Tested.Len(), Cores: len(cores)}
	e.Window, e.Warmup, e.Job = b.Window, b.Warmup, job.argv(0, 0, b.whole)
}
