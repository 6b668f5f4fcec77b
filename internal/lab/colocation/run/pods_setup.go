package run

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"tenon.sh/tenon/internal/lab/colocation"
	"tenon.sh/tenon/internal/lab/harness"
	"tenon.sh/tenon/internal/lab/load"
	"tenon.sh/tenon/internal/lab/nodes"
	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/lab/testbed"
	"tenon.sh/tenon/internal/model/unit"
)

const (
	// podPatience is the time within which a created pod must run. This includes
	// the download of the image.
	podPatience = 5 * time.Minute
	// offerPatience is the time within which the node must offer enough batch
	// resources. In its first minute tenond only measures, and after that the
	// amounts grow slowly.
	offerPatience = 5 * time.Minute
	// amountsPatience is the time for which the amounts of a setting before may stand.
	// An annotation of the node may set more than the default for ever.
	amountsPatience = 15 * time.Second
)

// A podSetUp holds the pods of one mode, ready to be measured.
type podSetUp struct {
	b         *pods
	sampler   *podSampler
	node      nodeCounter
	batchPods *colocation.BatchPods // nil: the scheduler placed none
}

// setUp configures Tenon for the mode and starts the pods. It returns when
// nginx answers and every ffmpeg encodes.
func (b *pods) setUp(ctx context.Context, t report.ModeSpec, rate float64) (_ stage, err error) {
	st := &podSetUp{b: b, sampler: &podSampler{period: askPeriod(b.Duration)}}
	defer func() {
		if err != nil {
			err = st.close(ctx, err)
		}
	}()
	if t.Isolates() && b.batchPods() == 0 {
		if err := b.awaitBatch(ctx); err != nil {
			return nil, err
		}
	}
	if err := b.apply(ctx, strategyOf(t, b.amounts())); err != nil {
		return nil, err
	}
	if err := b.start(ctx, nginxPod, b.nginxManifest(max(b.Place.Tested.Len(), 1))); err != nil {
		return nil, err
	}
	if err := b.answers(ctx); err != nil {
		return nil, err
	}
	if st.sampler.service, err = b.space.Open(nginxPod, serviceScript); err != nil {
		return nil, err
	}
	lines, err := st.sampler.service.Answer()
	if err != nil {
		return nil, err
	}
	if err := b.setTested(lines); err != nil {
		return nil, err
	}
	st.sampler.tested = b.Place.Tested
	if t.Batch || t.Spinner {
		err = st.startBeside(ctx, t, rate)
	}
	return st, err
}

// setTested sets the tested CPUs: the CPUs that the service's pod may use.
func (b *pods) setTested(lines []string) error {
	_, list, _ := strings.Cut(strings.Join(lines, ""), ":")
	cpus, err := unit.ParseCPUSet(strings.TrimSpace(list))
	if err != nil || cpus.Empty() {
		return fmt.Errorf("learn from pod %s which CPUs it may use: it says %.300q", nginxPod, strings.Join(lines, "\n"))
	}
	if both := cpus.Intersect(b.Place.Client.Union(b.Place.Lab)); b.node.Here && !both.Empty() {
		return fmt.Errorf("the lab runs on node %s itself, whose pods may use CPUs %v: give the lab CPUs of its own with --client-cpus, "+
			"and keep the pods off them (reservedSystemCPUs and strict-cpu-reservation of the kubelet)", b.node.Name, cpus)
	}
	if !b.Place.Tested.Empty() && b.Place.Tested != cpus {
		return fmt.Errorf("pod %s may use CPUs %v, and could use %v before: another component changes them", nginxPod, cpus, b.Place.Tested)
	}
	b.Place.Tested = cpus
	return nil
}

// startBeside starts the spinner, or the batch work. rate limits how fast each
// ffmpeg reads, in seconds of media per second (0: no limit).
func (st *podSetUp) startBeside(ctx context.Context, t report.ModeSpec, rate float64) (err error) {
	b, run := st.b, []string{batchPod}
	if b.batchPods() > 0 {
		run, st.batchPods, err = b.place(ctx, t, rate)
	} else {
		err = b.startBatch(ctx, b.batchManifest(t, rate))
	}
	if err != nil {
		return err
	}
	for _, pod := range run {
		shell, err := b.space.Open(pod, batchScript)
		if err != nil {
			return err
		}
		st.sampler.batch = append(st.sampler.batch, shell)
	}
	if st.sampler.spins = t.Spinner; t.Spinner {
		return nil
	}
	all := b.processes * len(run)
	for deadline := time.Now().Add(time.Minute); ; {
		c, err := st.sampler.askBatch()
		if err != nil {
			return errors.Join(err, b.space.Complaint(ctx, run...))
		}
		if err := exitError(c.ended, all); err != nil {
			return fmt.Errorf("%w%w", err, b.space.Complaint(ctx, run...))
		}
		started := 0
		for _, m := range c.progress {
			if m.Frames > 0 {
				started++
			}
		}
		if started >= all {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("of %d ffmpegs %d have encoded a frame after a minute%w", all, started, b.space.Complaint(ctx, run...))
		}
		if err := testbed.Pause(ctx, 200*time.Millisecond); err != nil {
			return err
		}
	}
}

// notCovered are the reasons for which a kubelet refuses a pod whose batch resources
// the node does not have.
var notCovered = []string{"OutOf" + nodes.BatchCPU, "OutOf" + nodes.BatchMemory}

// errNotCovered is the error of a pod that its kubelet refused, because the node's
// resources did not cover it.
var errNotCovered = errors.New("the kubelet refused it")

// startBatch starts the pod of the batch work. What the node offers follows from its
// use, and may fall between the last look and the kubelet's. A pod that the kubelet
// refused never runs, so another one takes its place when the node offers enough.
func (b *pods) startBatch(ctx context.Context, objects []object) error {
	for deadline := time.Now().Add(offerPatience); ; {
		err := b.start(ctx, batchPod, objects)
		if !errors.Is(err, errNotCovered) || time.Now().After(deadline) {
			return err
		}
		b.Status.Now("%v", err)
		if err := errors.Join(b.space.Clean(ctx, b.space.Selector("app", batchPod), "foreground"), b.awaitBatch(ctx)); err != nil {
			return err
		}
	}
}

// start creates the objects, and waits until the named pod runs.
func (b *pods) start(ctx context.Context, pod string, objects []object) error {
	if err := b.space.Apply(ctx, objects); err != nil {
		return err
	}
	said := ""
	for deadline := time.Now().Add(podPatience); ; {
		var p podState
		if err := b.space.Get(ctx, &p, "pod", pod); err != nil {
			return err
		}
		why := p.why()
		switch {
		case p.Status.Phase == "Running":
			return nil
		case p.notCovered():
			return fmt.Errorf("pod %s/%s: %w: %s", b.space.Namespace, pod, errNotCovered, why)
		case p.ended():
			return fmt.Errorf("pod %s/%s ended (%s) %s%w", b.space.Namespace, pod, p.Status.Phase, why, b.space.Complaint(ctx, pod))
		case time.Now().After(deadline):
			return fmt.Errorf("pod %s/%s does not run after %v: %s", b.space.Namespace, pod, podPatience, why)
		}
		if now := p.Status.Phase + why; now != said {
			b.Status.Now("waiting for pod %s: %s %s", pod, p.Status.Phase, why)
			said = now
		}
		if err := testbed.Pause(ctx, 300*time.Millisecond); err != nil {
			return err
		}
	}
}

func (b *pods) answers(ctx context.Context) error {
	client := http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	for deadline := time.Now().Add(30 * time.Second); ; {
		resp, err := client.Get(b.target())
		if err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
			err = errors.New("it answers " + resp.Status)
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("nginx at %s: %w%w", b.target(), err, b.space.Complaint(ctx, nginxPod))
		}
		if err := testbed.Pause(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
}

func (st *podSetUp) close(ctx context.Context, err error) error {
	st.sampler.service.Close()
	for _, shell := range st.sampler.batch {
		shell.Close()
	}
	return errors.Join(err, st.b.space.Clean(ctx, st.b.space.All(), "background"))
}

func (st *podSetUp) counter() harness.Counter  { return st.sampler }
func (st *podSetUp) service() *testbed.Process { return st.sampler.service.Process }
func (st *podSetUp) exitError() error          { return st.sampler.exitError() }
func (st *podSetUp) progress(m harness.Measurement) []progress {
	return st.between(m.From, m.To)
}
func (st *podSetUp) between(from, to time.Time) []progress { return st.sampler.progress(from, to) }

// look does nothing: the process on the node reads the progress with the counters.
func (st *podSetUp) look(time.Time) error { return nil }

func (st *podSetUp) send(ctx context.Context, order load.Config) (harness.Measurement, error) {
	if st.b.switches() { // the use of the node in a start is that of no mode
		return harness.LoadOpen(ctx, st.b.Site, order)
	}
	watched, stop := context.WithCancel(ctx)
	var watching sync.WaitGroup
	watching.Go(func() { st.node.watch(watched, st.b) })
	defer watching.Wait()
	defer stop()
	if st.b.Client == harness.ClientWrk {
		return st.b.loadWrk(ctx, order)
	}
	return harness.LoadOpen(ctx, st.b.Site, order)
}

// check reads the use of the node from the metrics API or from its kubelet, and asks tenond for the
// settings in force.
func (st *podSetUp) check(ctx context.Context, t report.ModeSpec, m harness.Measurement, r *colocation.Run) error {
	r.BatchPods = st.batchPods
	if !st.b.switches() {
		if r.NodeMetricsCPU = st.b.nodeMetrics(ctx, m.From, m.To, metricsPatience); r.NodeMetricsCPU == 0 {
			r.NodeMetricsCPU = st.node.between(m.From, m.To)
		}
	}
	if why := st.b.agrees(ctx, t); why != "" {
		r.Discard(report.NotItsMode, why)
	}
	return ctx.Err()
}

// reportPatience is the time for which agrees waits. tenond reports a change sooner.
const reportPatience = 15 * time.Second

// agrees waits until tenond reports that it has applied the settings of the mode,
// and returns "". If tenond does not, agrees returns the setting that differs.
func (b *pods) agrees(ctx context.Context, t report.ModeSpec) (why string) {
	for deadline := time.Now().Add(reportPatience); ; {
		r, err := nodes.ReportOf(ctx, b.space.Client, b.node.Name)
		if err != nil {
			return err.Error()
		}
		switch {
		case r.Is("CPUQOS") != t.Isolates():
			why = fmt.Sprintf("tenond reports CPUQOS %v, the mode wants %v", r.Is("CPUQOS"), t.Isolates())
		case r.Is("Suppressing") != t.Suppress:
			why = fmt.Sprintf("tenond reports Suppressing %v, the mode wants %v", r.Is("Suppressing"), t.Suppress)
		default:
			return ""
		}
		if time.Now().After(deadline) || testbed.Pause(ctx, time.Second) != nil {
			return why
		}
	}
}

// amounts returns how much batch-cpu the node offers in all modes: the default if a mode
// has all features of the published experiment, or if the scheduler counts by it, and
// otherwise nil, as much as the batch work may want. Amounts grow slowly, so they are the
// same in all modes.
func (b *pods) amounts() object {
	if b.batchPods() > 0 || slices.ContainsFunc(b.Modes, func(m report.Mode) bool { return m.Spec().AllFeatures }) {
		return defaultAmounts()
	}
	return nil
}

// leastBatch is the smallest amount of batch-cpu with which ffmpeg is worth measuring.
const leastBatch = unit.MilliCPU(100)

// chooseBatch chooses what the batch pod requests in all modes with Tenon. With the
// default amounts this is the share of the published pod, or less if the node has less
// free: these amounts follow from the use of the node.
func (b *pods) chooseBatch(ctx context.Context) error {
	b.batch = unit.CPUs(b.Place.Tested.Len())
	if b.amounts() == nil {
		return b.awaitBatch(ctx)
	}
	_, third := thirdMode()
	share := batchLimit(report.SLOAware.Spec(), b.Place.Tested.Len())
	most := unit.CPUs(b.node.CPUs).Percent(third.Policy.Overcommit.CPU.ThresholdPercent)
	b.Status.Now("waiting until node %s offers the default amount of batch-cpu", b.node.Name)
	for begun := time.Now(); ; {
		found, err := nodes.Find(ctx, b.space.Client, []string{b.node.Name}) // with what other pods have left
		if err != nil {
			return err
		}
		n := found[0]
		has, waited := n.Free.BatchCPU, time.Since(begun)
		switch settled := n.Offers.BatchCPU <= most; {
		case b.batchPods() > 0:
			if settled || waited > amountsPatience {
				return nil // the pods show how much it is
			}
		case has >= share && (settled || waited > offerPatience/5): // an annotation of the node may set more than the default
			b.batch = share
			return b.awaitBatch(ctx)
		case settled && waited > offerPatience/5 && has*3/4 >= leastBatch:
			b.batch = has * 3 / 4 / 10 * 10 // the offer goes up and down with the use of the node
			b.caveats = append(b.caveats, fmt.Sprintf("node %s has %d milli-CPUs of batch-cpu free by the default amounts, so ffmpeg requests %d; in the proportion of the published pod it would be %d",
				n.Name, has, b.batch, share))
			return b.awaitBatch(ctx)
		case waited > offerPatience:
			return fmt.Errorf("node %s has %d of %s free of %d by the default amounts after %v, the experiment needs %d at least: kubectl tenon explain node %s says why",
				n.Name, has, nodes.BatchCPU, n.Offers.BatchCPU, offerPatience, leastBatch*4/3, n.Name)
		}
		if err := testbed.Pause(ctx, time.Second); err != nil {
			return err
		}
	}
}

// awaitBatch waits until the node offers enough batch resources for ffmpeg.
func (b *pods) awaitBatch(ctx context.Context) error {
	want := b.batch
	said := unit.MilliCPU(-1)
	for deadline := time.Now().Add(offerPatience); ; {
		n, err := nodes.Named(ctx, b.space.Client, b.node.Name)
		if err != nil {
			return err
		}
		has := n.Offers
		if has.BatchCPU >= want && has.BatchMemory >= b.batchMemory() {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("node %s offers %d of %s and %d of %s after %v, the experiment needs %d and %d: kubectl tenon explain node %s says why",
				n.Name, has.BatchCPU, nodes.BatchCPU, has.BatchMemory, nodes.BatchMemory, offerPatience, want, b.batchMemory(), n.Name)
		}
		if has.BatchCPU != said {
			b.Status.Now("waiting until node %s offers batch resources: %d of %d milli-CPUs, %s of %s",
				n.Name, has.BatchCPU, want, testbed.Mebibytes(has.BatchMemory), testbed.Mebibytes(b.batchMemory()))
			said = has.BatchCPU
		}
		if err := testbed.Pause(ctx, time.Second); err != nil {
			return err
		}
	}
}
