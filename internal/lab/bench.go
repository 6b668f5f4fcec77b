package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"time"

	"tenon.sh/tenon/internal/lab/report"
)

// A bench is the colocation experiment set up: programs found, film ready.
// Close leaves the machine as it was.
type bench struct {
	Config
	*site

	nginx    NGINX
	versions map[string]string

	ffmpegPath, wrkPath string
	ffmpegVersion       Version
	input               string
	processes, threads  int

	rate    float64 // offered, requests per second
	pacer   pacer
	skipped []report.Skipped
}

// set makes a bench. Every fault that can be seen beforehand is an error
// here, before anything runs.
func set(ctx context.Context, c Config) (_ *bench, err error) {
	b := &bench{Config: c, versions: map[string]string{}}
	if b.site, err = enter(ctx, c.Setting); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.Close())
		}
	}()
	if b.Modes, b.skipped, err = modesHere(c.Modes, b.carries); err != nil {
		return nil, err
	}
	if err := b.find(ctx); err != nil {
		return nil, err
	}
	b.processes, b.threads = Batch(b.place.Tested.Len())
	if b.BEProcesses > 0 {
		b.processes = b.BEProcesses
	}
	if b.BEThreads > 0 {
		b.threads = b.BEThreads
	}
	if b.nginx, err = b.prepareNGINX(b.nginx, b.Port, b.connections()); err != nil {
		return nil, err
	}
	if b.input = c.Input; b.input == "" {
		rendering := func() { b.status.Now("rendering the clip, once for this machine") }
		if b.input, err = Clip(ctx, b.ffmpegPath, c.CacheDir, rendering); err != nil {
			return nil, err
		}
	}
	return b, b.stepAside()
}

// find looks for the programs and asks for their versions.
func (b *bench) find(ctx context.Context) error {
	var err error
	if b.nginx.Path, err = nginxProgram.find(); err != nil {
		return err
	}
	if b.ffmpegPath, err = ffmpegProgram.find(); err != nil {
		return err
	}
	if b.Client == ClientWrk {
		if b.wrkPath, err = wrkProgram.find(); err != nil {
			return err
		}
	}
	if b.nginx.Version, b.versions["nginx"], err = nginxProgram.ask(ctx, b.nginx.Path); err != nil {
		return err
	}
	if b.ffmpegVersion, b.versions["ffmpeg"], err = ffmpegProgram.ask(ctx, b.ffmpegPath); err != nil {
		return err
	}
	for _, m := range b.Modes {
		if traitsOf(m).paced && !b.ffmpegVersion.AtLeast(5, 0) {
			return fmt.Errorf("mode %s needs ffmpeg 5.0 or newer for -readrate, this is %s: leave the mode out with --modes", m, b.versions["ffmpeg"])
		}
	}
	return checkEncoder(ctx, b.ffmpegPath)
}

// prepareNGINX gives nginx a directory and a port (0: a free one).
func (s *site) prepareNGINX(n NGINX, port, connections int) (NGINX, error) {
	dir, err := s.directory("")
	if err != nil {
		return n, fmt.Errorf("make a directory for nginx: %w", err)
	}
	if port == 0 {
		if port, err = freePort(); err != nil {
			return n, err
		}
	}
	n.Dir = dir
	n.Address = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	n.Connections = connections
	if n.Workers == 0 {
		n.Workers = s.place.Tested.Len()
	}
	if err := portFree(n.Address); err != nil {
		return n, err
	}
	return n, n.Prepare()
}

// experiment is the record of the bench.
func (b *bench) experiment(solo solo, calibration []string, caveats []string) report.Experiment {
	kind, machine := report.KindColocation, describe(b.fs, b.topology, b.host.Capabilities(), b.tree.Version())
	if b.ladder {
		kind, machine.Mechanisms = report.KindKernelQOS, nil
		for _, m := range b.Modes {
			if rung, pins := rungOf[m]; pins {
				machine.Mechanisms = append(machine.Mechanisms, string(rung))
			}
		}
	}
	return report.Experiment{
		Schema: report.Schema, Kind: kind, Started: time.Now(), Command: b.Command, Version: b.Version,
		Modes: b.Modes, Blocks: b.Blocks, Duration: b.Duration, Seed: b.Seed, Margin: b.Margin,
		TestedCPUs: b.place.Tested, ClientCPUs: b.place.Client, Client: b.Client,
		OfferedRate: b.rate, LoadPercent: b.LoadPercent,
		BEProcesses: b.processes, BEThreads: b.threads, Input: filepath.Base(b.input),
		SoloFramesPerSecond: solo.frames, SoloCPU: solo.cpus,
		Machine: machine, Tenond: b.tenondRecord(), Skipped: b.skipped, Siblings: b.place.Siblings(b.topology),
		Calibration: calibration, Caveats: append(caveats, b.caveats()...), Versions: b.versions,
	}
}

// tenondRecord is what the tenond of each mode is told, for the record.
func (b *bench) tenondRecord() map[report.Mode]string {
	if b.Agent == "" {
		return nil
	}
	told := map[report.Mode]string{}
	for _, m := range b.Modes {
		if t := traitsOf(m); t.tenon {
			told[m] = colocationTenond(pods{root: b.Root, tested: b.place.Tested}, t).record(b.Agent)
		}
	}
	return told
}

// caveats are what a reader must know about the division of the machine.
func (s *site) caveats() []string {
	list := []string{"the client runs on the same machine, on CPUs of its own, over the loopback device: no network card, no network"}
	if s.place.SharesCore(s.topology) {
		list = append(list, "client and tested CPUs share a core: the client's work slows the service down, alike in all modes")
	}
	return list
}

// caveats are what a reader must know about the set-up.
func (b *bench) caveats() []string {
	list := b.site.caveats()
	if b.Client == ClientWrk {
		list = append(list, "wrk is a closed-loop client: a stall hides the requests that it delays, so its percentiles are too low")
	}
	return list
}
