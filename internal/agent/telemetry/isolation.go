package telemetry

import (
	"cmp"
	"reflect"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/trial"
)

var (
	descMechanism = desc("tenon_isolation_mechanism", "1: this isolation mechanism is in use, 0: it is not.", "mechanism")
	descCan       = desc("tenon_isolation_mechanism_possible", "1: the node supports this isolation mechanism, 0: it does not. Absent: that is unknown.", "mechanism")
	descFailures  = desc("tenon_isolation_mechanism_failures", "Failures of this isolation mechanism in the last hour although the node supports it.", "mechanism")
	descDown      = desc("tenon_isolation_mechanism_down", "1: this isolation mechanism failed so often that Tenon does not try it for now.", "mechanism")
	descTrial     = desc("tenon_isolation_trial_ratio", "Waiting of all services for each wait with the mechanism that was tried, as a multiple of that without it: mean, and the bounds low and high.", "candidate", "found", "bound")
	descTrying    = desc("tenon_isolation_trial_running", "1: a trial of this isolation mechanism is in progress.", "candidate")
	descPairs     = desc("tenon_isolation_trial_pairs", "Pairs of epochs of the last trial of this isolation mechanism.", "candidate", "found")
	descWaiting   = desc("tenon_isolation_trial_waiting_seconds", "Waiting of the services for a CPU in an hour, as the last trial of this isolation mechanism found it: without and with.", "candidate", "found", "mechanism")
	descByHand    = desc("tenon_isolation_pinned_by_hand", "1: an operator has pinned the isolation mechanism, 0: the configuration selects it.")
	descStrays    = desc("tenon_isolation_strays_total", "Threads of best-effort work that were found outside of the isolation mechanism.")
	descConvert   = desc("tenon_isolation_strays_converted_total", "Stray threads that Tenon put under the isolation mechanism.")
	descRealtime  = desc("tenon_isolation_realtime_threads", "Threads of best-effort work with a real-time policy, which Tenon does not change.")
	descOwnSlice  = desc("tenon_isolation_own_slice_threads", "Threads of best-effort work that have their own slice or SCHED_IDLE although all should have the long slice.")
	descDemotions = desc("tenon_isolation_demotions_total", "Threads that Tenon demoted to the kernel's fair class for a while because they had waited too long.")
	descDemoted   = desc("tenon_isolation_demoted_threads", "Threads that are demoted to the kernel's fair class now.")

	descLoads      = desc("tenon_scheduler_loads_total", "Loads of the BE scheduler by tenond.")
	descExits      = desc("tenon_scheduler_exits_total", "Ends of the BE scheduler, by kind: unload, silent, kernel, sysrq, stall, error.", "kind")
	descRunning    = desc("tenon_scheduler_running", "1: Tenon's scheduler is loaded.")
	descRefused    = desc("tenon_scheduler_untold", "1: the loaded scheduler has not accepted all orders, such as the classes of cgroups, or BE workloads share a slot.")
	descRun        = desc("tenon_scheduler_run_seconds_total", "Run time of threads, by the class that they have in the scheduler.", "class")
	descStrayed    = desc("tenon_scheduler_strayed_seconds_total", "Time that threads in best-effort groups ran outside of the scheduler.")
	descIdle       = desc("tenon_scheduler_idle_seconds_total", "Time that CPUs were idle, for any reason.")
	descBEWait     = desc("tenon_scheduler_wait_seconds_total", "Time that best-effort threads waited until they were put on a CPU.")
	descExpelIdle  = desc("tenon_scheduler_expel_idle_seconds_total", "Time that CPUs were kept idle because latency-sensitive work ran on the sibling while best-effort work waited.")
	descHoldIdle   = desc("tenon_scheduler_hold_idle_seconds_total", "Time that CPUs were kept idle for the hold time after latency-sensitive work on the sibling.")
	descExpelDelay = desc("tenon_scheduler_expel_delay_seconds", "Time until best-effort work left after latency-sensitive work had started on the sibling.")
	descKicks      = desc("tenon_scheduler_kicks_total", "Kicks of CPUs: to expel best-effort work, to wake a CPU for it, or the latter by timer.", "kind")
	descQueued     = desc("tenon_scheduler_queued_threads", "Best-effort threads that wait now, by queue: shared, urgent, pinned to one CPU, parked for their quota.", "queue")
	descOldest     = desc("tenon_scheduler_oldest_wait_seconds", "The longest wait of the best-effort threads that wait now.")
)

// schedulerCounts holds the metric of each field of node.SchedulerCounts with
// the tag help, by the index of the field.
var schedulerCounts = func() map[int]*prometheus.Desc {
	all := map[int]*prometheus.Desc{}
	for i := range reflect.TypeFor[node.SchedulerCounts]().NumField() {
		tag := reflect.TypeFor[node.SchedulerCounts]().Field(i).Tag
		if help, has := tag.Lookup("help"); has {
			all[i] = desc("tenon_scheduler_"+cmp.Or(tag.Get("metric"), tag.Get("json"))+"_total", help)
		}
	}
	return all
}()

// emitIsolation emits the isolation mechanism in use, and the counters of all
// mechanisms. The metrics of the scheduler appear with its first load, and
// their counters start at 0 after each load.
func (e emitter) emitIsolation(l node.Selection, v trial.Status, i node.IsolationStatus) {
	for _, r := range l.Mechanisms {
		name := string(r.Mechanism)
		e.gauge(descMechanism, oneIf(r.Mechanism == l.Mechanism), name)
		if r.Can != node.Unknown {
			e.gauge(descCan, oneIf(r.Can == node.Yes), name)
		}
		e.gauge(descFailures, float64(r.Failures), name)
		e.gauge(descDown, oneIf(r.Down), name)
	}
	e.emitTrials(l, v)
	e.gauge(descByHand, oneIf(l.ByHand))
	e.count(descStrays, i.Strays)
	e.count(descConvert, i.Converted)
	e.gauge(descRealtime, float64(i.Realtime))
	e.gauge(descOwnSlice, float64(i.OwnSlices))
	e.count(descLoads, i.Loads)
	s := i.Scheduler
	e.gauge(descRunning, oneIf(s != nil && s.Running))
	e.gauge(descRefused, oneIf(i.Refused != "" || l.Slotless > 0))
	if s == nil {
		return
	}
	for _, k := range node.ExitKinds {
		e.count(descExits, i.Exits[k], string(k))
	}
	e.count(descDemotions, i.Demotions)
	e.gauge(descDemoted, float64(i.Demoted))
	e.scheduler(s)
}

// emitTrials emits the results of the last round of trials.
func (e emitter) emitTrials(l node.Selection, v trial.Status) {
	for _, r := range l.Mechanisms {
		e.gauge(descTrying, oneIf(r.Mechanism == v.Trying), string(r.Mechanism))
	}
	for _, r := range v.Results {
		candidate, found := string(r.Candidate), string(r.Finding)
		e.gauge(descPairs, float64(r.Pairs), candidate, found)
		if r.Ratio > 0 {
			e.gauge(descTrial, r.Ratio, candidate, found, "mean")
			e.gauge(descTrial, r.Low, candidate, found, "low")
			e.gauge(descTrial, r.High, candidate, found, "high")
		}
		var without, with time.Duration
		for _, s := range r.Services {
			without, with = without+s.HourWithout, with+s.HourWith
		}
		e.gauge(descWaiting, without.Seconds(), candidate, found, "without")
		e.gauge(descWaiting, with.Seconds(), candidate, found, "with")
	}
}

func (e emitter) scheduler(s *node.SchedulerStatus) {
	for _, c := range node.SchedulerClasses {
		e.time(descRun, s.Run[c], string(c))
	}
	e.time(descStrayed, s.Strayed)
	e.time(descIdle, s.Idle)
	e.time(descBEWait, s.Wait)
	e.time(descExpelIdle, s.ExpelIdle)
	e.time(descHoldIdle, s.HoldIdle)
	e.expelDelay(s.ExpelDelay)
	counts := reflect.ValueOf(s.SchedulerCounts)
	for i, d := range schedulerCounts {
		e.count(d, counts.Field(i).Uint())
	}
	e.count(descKicks, s.KicksExpel, "expel")
	e.count(descKicks, s.KicksWake-min(s.KicksTimer, s.KicksWake), "wake")
	e.count(descKicks, s.KicksTimer, "timer")
	var waiting, urgent, pinned int
	for _, q := range s.Queues {
		waiting, urgent, pinned = waiting+q.Waiting, urgent+q.Urgent, pinned+q.Pinned
	}
	e.gauge(descQueued, float64(waiting), "shared")
	e.gauge(descQueued, float64(urgent), "urgent")
	e.gauge(descQueued, float64(pinned), "pinned")
	e.gauge(descQueued, float64(s.Parked), "parked")
	e.gauge(descOldest, s.OldestWait.Seconds())
}

// expelDelay emits the delays of expulsions (of BE from siblings of LS) as a
// histogram. The scheduler counts delays only by bucket. For the sum, each
// delay counts as the middle of its bucket: three quarters of the bound.
func (e emitter) expelDelay(counts []uint64) {
	if len(counts) == 0 {
		return
	}
	buckets := map[float64]uint64{}
	var n uint64
	var sum float64
	for i, count := range counts {
		n += count
		sum += float64(count) * node.DelayBound(i).Seconds() * 3 / 4
		if i < len(counts)-1 { // the last count has no bound
			buckets[node.DelayBound(i).Seconds()] = n
		}
	}
	e <- prometheus.MustNewConstHistogram(descExpelDelay, n, sum, buckets)
}

func (e emitter) count(d *prometheus.Desc, n uint64, labels ...string) {
	e <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
}

func (e emitter) time(d *prometheus.Desc, t time.Duration, labels ...string) {
	e.seconds(d, node.Some(t), labels...)
}

func oneIf(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
