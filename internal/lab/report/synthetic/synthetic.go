// Package synthetic invents experiments for tests of claims, tables and
// pictures. None of their values was measured.
package synthetic

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"tenon.sh/tenon/internal/lab/load"
	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/model/unit"
)

// A shape defines the invented runs of one mode.
type shape struct {
	scale, tail   float64 // of the latency, relative to exclusive
	delay         float64 // run-queue delay, µs
	be, limit     float64 // CPUs of BE, and its quota
	framesPerCPU  float64
	beThrottled   float64
	kernelWrites  []string
	noBatchAtAll  bool
	voidInBlock   int
	alwaysWarning string
}

var shapes = map[report.Mode]shape{
	report.Exclusive:     {scale: 1, tail: 1, delay: 1.15, noBatchAtAll: true},
	report.ExclusiveAA:   {scale: 1, tail: 1, delay: 1.15, noBatchAtAll: true},
	report.ExclusiveWarm: {scale: 0.93, tail: 0.96, delay: 0.47, noBatchAtAll: true, kernelWrites: []string{"cpu.idle 0 -> 1 in tenon-lab/spinner: the spinner only fills idle CPU"}},
	report.Default65:     {scale: 0.97, tail: 0.98, delay: 0.52, be: 0.36, framesPerCPU: 38},
	report.Tenon65: {scale: 0.97, tail: 0.98, delay: 0.50, be: 0.35, limit: 0.354, framesPerCPU: 38, beThrottled: 0.6, kernelWrites: []string{
		"cpu.idle 0 -> 1 in tenon-lab/kubepods/besteffort: BE runs only where no LS thread wants the CPU",
		"cpu.max max -> 35400 100000 in tenon-lab/kubepods/besteffort: 65% of 1000m − 296m in use"}},
	report.Default:   {scale: 0.93, tail: 0.96, delay: 0.48, be: 0.69, framesPerCPU: 39, kernelWrites: []string{"cpu.weight 100 -> 1 in tenon-lab/kubepods/besteffort: what kubelet writes for BestEffort"}},
	report.Burstable: {scale: 1.3, tail: 9, delay: 36, be: 0.69, framesPerCPU: 39, kernelWrites: []string{"cpu.weight 100 -> 20 in tenon-lab/kubepods/burstable/pod-ffmpeg: CPU request of 500m"}},
	report.Tenon: {scale: 0.93, tail: 0.96, delay: 0.48, be: 0.69, framesPerCPU: 39, voidInBlock: 3, alwaysWarning: "client lag P99 was 8 µs", kernelWrites: []string{
		"cpu.idle 0 -> 1 in tenon-lab/kubepods/besteffort: BE runs only where no LS thread wants the CPU"}},
	report.TenonIdle:      {scale: 0.93, tail: 0.96, delay: 0.48, be: 0.69, framesPerCPU: 39},
	report.TenonSiblings:  {scale: 0.93, tail: 0.96, delay: 0.5, be: 0.5, framesPerCPU: 39},
	report.TenonCoreSched: {scale: 0.94, tail: 1.1, delay: 0.7, be: 0.45, framesPerCPU: 39},
	report.TenonSCX:       {scale: 0.93, tail: 0.96, delay: 0.48, be: 0.5, framesPerCPU: 39},
	report.Tenond:         {scale: 1, tail: 1, delay: 1.2, be: 0.4},
}

// Experiment invents an experiment without runs.
func Experiment(blocks int, modes ...report.Mode) report.Experiment {
	return report.Experiment{
		Header: report.Header{
			Schema: report.Schema, Started: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
			Command: []string{"tenon", "lab", "colocation", "--blocks", "9"}, Version: "synthetic",
			Modes: modes, Blocks: blocks, Seed: 1, TestedCPUs: unit.CPUSetOf(1), ClientCPUs: unit.CPUSetOf(0),
			Machine: report.Machine{
				Kernel: "6.18.0-synthetic", OS: "Synthetic Linux 1", CPUModel: "Invented CPU <1 & only>", CPUs: 2, Virtualization: "kvm",
				CgroupVersion: 2, MemoryBytes: 8 << 30, Mechanisms: []string{"cpu.idle", "cpu.max"},
			},
			Caveats:  []string{"These data are synthetic: invented for a test, measured nowhere."},
			Versions: map[string]string{"nginx": "1.22.1", "ffmpeg": "5.1.6"},
		},
		Duration: 20 * time.Second, Margin: 1.03, Client: "tenon",
		OfferedRate: 4200, LoadPercent: 30, BEProcesses: 1, BEThreads: 2, Input: "synthetic clip",
		SoloFramesPerSecond: 39.5, SoloCPU: 1,
		Calibration: []string{"capacity 14000 requests/s at P99 below 10 ms", "30 % of it: 4200 requests/s"},
	}
}

// Runs invents the runs of an experiment. noise is the standard deviation of
// the logarithms of the values within a block.
func Runs(e report.Experiment, noise float64) []report.Run {
	rng := rand.New(rand.NewPCG(e.Seed, 42))
	var runs []report.Run
	for block := range e.Blocks {
		machine := math.Exp(0.1 * rng.NormFloat64()) // common factor of the runs of a block
		for _, i := range rng.Perm(len(e.Modes)) {
			mode := e.Modes[i]
			runs = append(runs, shapes[mode].run(e, mode, len(runs), block, machine*math.Exp(noise*rng.NormFloat64()), rng))
		}
	}
	return runs
}

func (s shape) run(e report.Experiment, mode report.Mode, index, block int, state float64, rng *rand.Rand) report.Run {
	h := hdrhistogram.New(1, 60_000_000, 3)
	for range 40000 {
		us := 180 * s.scale * state * math.Exp(0.35*rng.NormFloat64())
		if rng.Float64() < 0.03 {
			us *= (1 + rng.ExpFloat64()) * (1 + (s.tail-1)*rng.Float64())
		}
		_ = h.RecordValue(int64(us) + 1)
	}
	ls := 0.296 + 0.005*rng.NormFloat64()
	r := report.Run{
		Index: index, Block: block, Mode: mode,
		Started: e.Started.Add(time.Duration(index) * 30 * time.Second), Length: e.Duration, Warmup: 3 * time.Second,
		Latency: load.LatencyOf(h, load.LatencyUnit), Histogram: h, Requests: h.TotalCount(),
		ClientLag: load.Latency{P50: 1, P75: 2, P90: 3, P99: 6, P999: 20, Max: 60, Mean: 1.5}, ClientCPU: 0.31,
		LSCPU: ls, BECPU: s.be, OtherCPU: 0.006, CPUPercent: 100 * min(ls+s.be+0.006, 1), StealRatio: 0.001,
		FramesPerS: s.be * s.framesPerCPU * (1 + 0.01*rng.NormFloat64()), BEThrottled: time.Duration(s.beThrottled * float64(e.Duration)),
		Timeslices: 400_000, DelayPerRun: s.delay * math.Exp(0.03*rng.NormFloat64()), PSICPU: -1,
		Writes: s.kernelWrites,
	}
	if s.noBatchAtAll {
		r.FramesPerS, r.CPUPercent = 0, 100*(ls+0.006)
	}
	if mode == report.ExclusiveWarm {
		r.CPUPercent, r.OtherCPU = 99.6, 0.7
	}
	r.Frames = r.FramesPerS * e.Duration.Seconds()
	r.RunDelay = time.Duration(r.DelayPerRun * float64(r.Timeslices) * 1e3)
	if s.voidInBlock > 0 && s.voidInBlock == block {
		r.Void = []string{"steal 4.2 % of the tested CPUs, more than 1 %"}
	}
	if s.alwaysWarning != "" {
		r.Warnings = []string{s.alwaysWarning}
	}
	for at := time.Duration(0); at < e.Duration; at += e.Duration / 80 {
		wave := 0.05 * math.Sin(at.Seconds())
		sample := report.Sample{At: at, LS: ls + wave + 0.02*rng.NormFloat64(), Other: r.OtherCPU, Limit: s.limit}
		if s.be > 0 {
			sample.BE = min(max(s.be-wave+0.02*rng.NormFloat64(), 0), 1-sample.LS-sample.Other)
		}
		r.Series = append(r.Series, sample)
	}
	return r
}

// AllModes lists the modes of a full colocation experiment.
var AllModes = []report.Mode{report.Exclusive, report.ExclusiveAA, report.ExclusiveWarm, report.Default, report.Default65, report.Burstable, report.Tenon, report.Tenon65}
