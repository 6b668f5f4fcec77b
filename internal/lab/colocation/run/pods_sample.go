package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync"
	"time"

	"tenon.sh/tenon/internal/lab/harness"
	"tenon.sh/tenon/internal/lab/kubectl"
	"tenon.sh/tenon/internal/lab/turns"
	"tenon.sh/tenon/internal/lab/work"
	"tenon.sh/tenon/internal/model/unit"
)

// longestAskPeriod is the longest time between two readings of the counters inside
// the pods. Each reading takes 1 to 2 ms of the service's CPU time.
const longestAskPeriod = 2 * time.Second

// askPeriod returns the time between two readings for a run of this length. The
// counters at the begin and the end of the measured part are interpolated, so the
// period must be short compared with it: otherwise the figures of a short run
// contain a part of its warm-up.
func askPeriod(run time.Duration) time.Duration {
	return min(max(run/10, harness.SamplePeriod), longestAskPeriod)
}

// groupFiles are files in which a container sees how much CPU its own cgroup
// uses, on cgroup v2 and on v1.
const groupFiles = "/sys/fs/cgroup/cpu.stat /sys/fs/cgroup/cpuacct/cpuacct.usage /sys/fs/cgroup/cpu/cpu.stat"

// serviceScript prints the counters of the node, the run-queue delay of all
// nginx threads, and the CPU use of the container's cgroup. In a container,
// /proc/stat and /proc/pressure still show values of the whole node.
const serviceScript = `t=
for p in /proc/[0-9]*; do
	read -r name < $p/comm && [ "$name" = nginx ] && t="$t $p/task/*/schedstat"
done 2>/dev/null
grep Cpus_allowed_list /proc/self/status
echo .
while read -r _; do
	cat /proc/stat /proc/pressure/cpu $t ` + groupFiles + ` 2>/dev/null
	echo .
done`

// batchScript prints the CPU use of the container's cgroup and, of each ffmpeg,
// the last progress report and how it ended (startScript).
const batchScript = `while read -r _; do
	cat ` + groupFiles + ` 2>/dev/null
	for f in ` + progressFiles + `*; do tail -n 16 $f; echo ,; done 2>/dev/null
	echo .
done`

// progressFiles is the path prefix of the progress files of the pod's ffmpegs.
const progressFiles = "/tmp/tenon-progress-"

// counters is the answer of the shell in a pod to one query.
type counters struct {
	idle, steal      map[unit.CPU]time.Duration
	delay            time.Duration // run-queue delay of the service's threads
	slices           int64
	usage, throttled time.Duration // of the container's cgroup
	hasUsage         bool
	stalled          time.Duration // of the node
	hasStalled       bool
	progress         []work.Mark // of each ffmpeg; without times
	ended            []string    // exit statuses of the ffmpegs that have ended
}

// userHZ is the number of ticks per second in /proc/stat. It is the same on
// each architecture that Kubernetes supports (proc_stat(5)).
const userHZ = 100

// parseCounters parses the lines of several files, which the script in a pod has
// printed. The CPU use of its cgroup must be among them.
func parseCounters(lines []string) (counters, error) {
	c, err := parseLines(lines)
	if err == nil && !c.hasUsage {
		err = fmt.Errorf("read the counters of a pod: it sees none of %s", groupFiles)
	}
	return c, err
}

// parseLines recognises each counter by the form of its line.
func parseLines(lines []string) (c counters, err error) {
	c.idle, c.steal = map[unit.CPU]time.Duration{}, map[unit.CPU]time.Duration{}
	var last work.Mark
	for _, l := range lines {
		f := strings.Fields(l)
		switch key, value, _ := strings.Cut(l, "="); {
		case l == ",":
			c.progress = append(c.progress, last)
			last = work.Mark{}
		case key == "ended":
			c.ended = append(c.ended, value)
		case key == "frame":
			last.Frames, err = strconv.ParseFloat(strings.TrimSpace(value), 64)
		case key == "out_time_us" && strings.TrimSpace(value) != "N/A":
			var us int64
			us, err = strconv.ParseInt(strings.TrimSpace(value), 10, 64)
			last.Media = time.Duration(us) * time.Microsecond
		case len(f) >= 9 && strings.HasPrefix(f[0], "cpu") && f[0] != "cpu":
			err = c.cpu(f)
		case len(f) == 5 && f[0] == "some":
			c.hasStalled = true
			c.stalled, err = scaledCount(strings.TrimPrefix(f[4], "total="), time.Microsecond)
		case len(f) == 3 && isNumber(f[0]) && isNumber(f[1]) && isNumber(f[2]): // schedstat
			var wait time.Duration
			wait, err = scaledCount(f[1], time.Nanosecond)
			n, e := strconv.ParseInt(f[2], 10, 64)
			err = errors.Join(err, e)
			c.delay, c.slices = c.delay+wait, c.slices+n
		case len(f) == 1 && isNumber(f[0]): // cpuacct.usage
			c.hasUsage = true
			c.usage, err = scaledCount(f[0], time.Nanosecond)
		case len(f) == 2 && f[0] == "usage_usec":
			c.hasUsage = true
			c.usage, err = scaledCount(f[1], time.Microsecond)
		case len(f) == 2 && f[0] == "throttled_usec":
			c.throttled, err = scaledCount(f[1], time.Microsecond)
		case len(f) == 2 && f[0] == "throttled_time":
			c.throttled, err = scaledCount(f[1], time.Nanosecond)
		}
		if err != nil {
			return c, fmt.Errorf("read the counters of a pod: %.200q: %w", l, err)
		}
	}
	return c, nil
}

// cpu reads the idle time and the steal time from a line of /proc/stat: cpuN
// user nice system idle iowait irq softirq steal …
func (c *counters) cpu(f []string) error {
	n, err := strconv.Atoi(f[0][len("cpu"):])
	if err != nil {
		return err
	}
	var ticks [2]time.Duration
	for i, column := range [][]string{{f[4], f[5]}, {f[8]}} {
		for _, text := range column {
			t, err := scaledCount(text, time.Second/userHZ)
			if err != nil {
				return err
			}
			ticks[i] += t
		}
	}
	c.idle[unit.CPU(n)], c.steal[unit.CPU(n)] = ticks[0], ticks[1]
	return nil
}

func isNumber(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

func scaledCount(s string, scale time.Duration) (time.Duration, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err == nil && (n < 0 || n > math.MaxInt64/int64(scale)) {
		err = fmt.Errorf("%d: want a time from 0 to %v", n, time.Duration(math.MaxInt64))
	}
	return time.Duration(n) * scale, err
}

// A podSampler reads counters inside the pods during a run.
type podSampler struct {
	harness.Recording
	period  time.Duration // between two readings
	service *kubectl.Shell
	batch   []*kubectl.Shell // of each batch pod
	spins   bool             // batch runs the spinner
	tested  unit.CPUSet
	marks   []*work.Marks // of each ffmpeg, guarded by mu
	ended   []string      // exit statuses of the ffmpegs that have ended, guarded by mu
}

func (s *podSampler) Capacity() int { return s.tested.Len() }

func (s *podSampler) Run(ctx context.Context) { s.Follow(ctx, s.period, s.read) }

// read queries all pods at the same time, so that their answers describe the
// same moment.
func (s *podSampler) read() {
	var service, batch counters
	var at time.Time
	var errService, errBatch error
	var asked sync.WaitGroup
	asked.Go(func() {
		before := time.Now()
		service, errService = countersOf(s.service)
		at = before.Add(time.Since(before) / 2)
	})
	asked.Go(func() { batch, errBatch = s.askBatch() })
	asked.Wait()
	s.Mu.Lock()
	defer s.Mu.Unlock()
	if err := cmp.Or(errService, errBatch); err != nil {
		s.Err = cmp.Or(s.Err, err)
		return
	}
	s.add(at, service, batch)
}

// askBatch asks the shells in all batch pods for the counters, and adds them up.
func (s *podSampler) askBatch() (sum counters, err error) {
	all, errs := make([]counters, len(s.batch)), make([]error, len(s.batch))
	var asked sync.WaitGroup
	for i, shell := range s.batch {
		asked.Go(func() { all[i], errs[i] = countersOf(shell) })
	}
	asked.Wait()
	for _, c := range all {
		sum.usage, sum.throttled = sum.usage+c.usage, sum.throttled+c.throttled
		sum.progress, sum.ended = append(sum.progress, c.progress...), append(sum.ended, c.ended...)
	}
	return sum, errors.Join(errs...)
}

// countersOf asks the shell in a pod for the counters.
func countersOf(s *kubectl.Shell) (counters, error) {
	lines, err := s.Ask()
	if err != nil {
		return counters{}, err
	}
	return parseCounters(lines)
}

// add stores a reading.
func (s *podSampler) add(at time.Time, service, batch counters) {
	r := harness.Reading{At: at}
	for cpu := range s.tested.All() {
		r.Count[harness.Idle] += service.idle[cpu].Seconds()
		r.Count[harness.Steal] += service.steal[cpu].Seconds()
	}
	s.NoPSI = !service.hasStalled
	r.Count[harness.Stalled] = service.stalled.Seconds()
	r.Count[harness.RunDelay], r.Count[harness.Timeslices] = service.delay.Seconds(), float64(service.slices)
	r.Count[harness.LSUsage], r.Count[harness.LSThrottled] = service.usage.Seconds(), service.throttled.Seconds()
	if s.spins {
		r.Count[harness.SpinUsage] = batch.usage.Seconds()
	} else {
		r.Count[harness.BEUsage], r.Count[harness.BEThrottled] = batch.usage.Seconds(), batch.throttled.Seconds()
	}
	s.Readings = append(s.Readings, r)
	s.ended = batch.ended
	for i, m := range batch.progress {
		if i == len(s.marks) {
			s.marks = append(s.marks, &work.Marks{})
		}
		m.At = at
		s.marks[i].Add(m)
	}
}

// follow stores what the progress files of the ffmpegs say.
func (s *podSampler) follow(files []turns.Progress) error {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	s.ended = nil
	for i, f := range files {
		c, err := parseLines(append(strings.Split(f.End, "\n"), ","))
		if err != nil {
			return err
		}
		if i == len(s.marks) {
			s.marks = append(s.marks, &work.Marks{})
		}
		m := c.progress[0]
		m.At = f.Written
		s.marks[i].Add(m)
		s.ended = append(s.ended, c.ended...)
	}
	return nil
}

// exitError returns an error if an ffmpeg had ended at the last reading. ffmpeg
// encodes its input again and again, so it never ends by itself.
func (s *podSampler) exitError() error {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	return exitError(s.ended, len(s.marks))
}

// exitError returns an error if the list of exit statuses is not empty. n is the
// number of all ffmpegs.
func exitError(statuses []string, n int) error {
	if len(statuses) == 0 {
		return nil
	}
	return fmt.Errorf("%d of %d ffmpegs ended with exit status %s (137: killed, as for lack of memory)",
		len(statuses), n, strings.Join(statuses, ", "))
}

// progress returns what each ffmpeg encoded between two times.
func (s *podSampler) progress(from, to time.Time) (all []progress) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	for _, m := range s.marks {
		frames, media := m.ProgressBetween(from, to)
		all = append(all, progress{frames, media})
	}
	return all
}
