package e2e

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"tenon.sh/tenon/internal/decide/trials/paired"
	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/lab/stat"
	"tenon.sh/tenon/internal/model/node"
)

// encoders is a configuration that gives encoders a CPU limit. If SEATS is
// true, a limited encoder has seats.
const encoders = `apiVersion: tenon.sh/v1alpha1
kind: NodeConfig
period: 100ms
rules:
- {name: web, class: LS, cgroups: ["ROOT/services/*"]}
- {name: encode, class: BE, cgroups: ["ROOT/batch/encode*"], limits: {cpu: LIMIT}}
resource-qos-config: {policies: {cpuIsolation: weight, cpuLimitSeats: SEATS}, beClass: {cpuQOS: {enable: true}}}
signals: {runQueueDelay: off}
`

// limitedTo returns the configuration with a limit.
func limitedTo(cpus int, seats bool) string {
	return strings.NewReplacer("LIMIT", strconv.Itoa(cpus), "SEATS", strconv.FormatBool(seats)).Replace(encoders)
}

// An encoder is an ffmpeg process in a cgroup of its own. It generates pictures
// and encodes them without end.
type encoder struct {
	s        *site
	group    string
	progress string
	pid      int
}

// encode starts an encoder. ffmpeg counts the CPUs on which it may run when it
// starts. So the process waits a moment before it executes ffmpeg.
func (s *site) encode(group string) *encoder {
	s.t.Helper()
	e := &encoder{s: s, group: group, progress: filepath.Join(s.t.TempDir(), "progress")}
	cmd := s.run(group, "sh", "-c", `sleep 0.2; exec ffmpeg -loglevel error -nostdin -stats_period 0.02 -progress `+e.progress+
		` -f lavfi -i testsrc2=size=640x360:rate=30 -c:v libx264 -preset medium -threads 0 -f null -`)
	e.pid = cmd.Process.Pid
	return e
}

// endPrograms ends the programs of the site. The encoder has the least
// weight, and beside a spinning program of normal weight it would get only a
// hundredth of a CPU.
func (s *site) endPrograms() {
	for _, pid := range s.tasks {
		_ = syscall.Kill(pid, syscall.SIGKILL)
		eventually(s.t, "a process of the site has ended", func() bool { return zombie(pid) })
	}
}

// alive reports whether the encoder runs.
func (e *encoder) alive() bool { return syscall.Kill(e.pid, 0) == nil && !zombie(e.pid) }

// kill ends the encoder.
func (e *encoder) kill() {
	_ = syscall.Kill(e.pid, syscall.SIGKILL)
	eventually(e.s.t, "the encoder has ended", func() bool { return !e.alive() })
}

// frames returns how many frames the encoder has finished.
func (e *encoder) frames() int {
	file, err := os.Open(e.progress)
	if err != nil {
		return 0 // there is no file at first
	}
	defer file.Close()
	const some = 4096 // several reports
	text := make([]byte, some)
	size, err := file.Seek(0, io.SeekEnd)
	e.s.check(err)
	n, _ := file.ReadAt(text, max(size-some, 0))
	text = text[:n]
	at := bytes.LastIndex(text, []byte("frame="))
	if at < 0 {
		return 0
	}
	line, _, _ := strings.Cut(string(text[at+len("frame="):]), "\n")
	frames, _ := strconv.Atoi(strings.TrimSpace(line)) // an incomplete line counts as 0
	return frames
}

// quota returns the quota of the encoder's cgroup.
func (e *encoder) quota() time.Duration {
	v, err := e.s.tree.ReadCPUMax(string(e.s.path(e.group)))
	e.s.check(err)
	return v.Quota
}

// use returns how much CPU time the encoder's cgroup has used, and how often it
// was throttled.
func (e *encoder) use() cgroup.CPUUse {
	u, err := e.s.tree.CPUUse(string(e.s.path(e.group)))
	e.s.check(err)
	return u
}

// TestSeatsFollowTheLimit changes the limit of an encoder under load between
// one CPU and two. In the long form, TENON_TEST_RESIZES is the number of
// changes.
func TestSeatsFollowTheLimit(t *testing.T) {
	needPrograms(t, "ffmpeg")
	s := plantSite(t, limitedTo(1, true))
	all := s.cpus("services")
	if all.Len() != 2 {
		t.Skipf("written for 2 CPUs, this machine has %d", all.Len())
	}
	resizes := 6
	if n, err := strconv.Atoi(os.Getenv("TENON_TEST_RESIZES")); err == nil {
		resizes = n
	}
	s.endPrograms()
	e := s.encode("batch/encode")
	s.before = s.dump(t)
	whole := s.wholeSets()
	d := s.tenond()
	has := func(cpus int) func() bool {
		return func() bool { return s.cpus("batch/encode").Len() == cpus && e.quota() == node.NoQuota }
	}
	eventually(t, "the encoder has one CPU and no quota", has(1))
	eventually(t, "the encoder encodes", func() bool { return e.frames() > 0 })
	var slowest time.Duration
	for i := range resizes {
		cpus := 2 - i%2
		frames := e.frames()
		s.configure(limitedTo(cpus, true))
		begun := time.Now()
		d.signal(syscall.SIGHUP)
		eventually(t, fmt.Sprintf("resize %d: the encoder has %d CPUs and no quota", i, cpus), has(cpus))
		slowest = max(slowest, time.Since(begun))
		eventually(t, "the encoder goes on", func() bool { return e.frames() > frames })
		if !e.alive() {
			t.Fatalf("the encoder ended in resize %d", i)
		}
	}
	t.Logf("%d resizes, the slowest took %v from the signal to the set without a quota", resizes, slowest.Round(time.Millisecond))
	for _, trouble := range []string{"could not be written", "another program keeps writing", "another component writes it"} {
		if strings.Contains(d.said(), trouble) {
			t.Errorf("tenond says %q of its own writes:\n%s", trouble, d.said())
		}
	}
	// If seats are off, tenond restores the quota, and the encoder may use all
	// CPUs.
	s.configure(limitedTo(1, false))
	d.signal(syscall.SIGHUP)
	eventually(t, "the encoder has its quota back", func() bool { return e.quota() == 100*time.Millisecond && s.cpus("batch/encode") == all })
	d.stop()
	for file, text := range whole {
		if now, err := os.ReadFile(file); err == nil && strings.TrimSpace(string(now)) != "" {
			s.before[file] = text
		}
	}
	s.restore()
}

// TestSeatsAgainstAQuota compares a quota with a seat. There are two CPUs. It
// first measures one encoder with a limit of one CPU, and then two such
// encoders. It measures in pairs, in random order. It runs for the time in
// TENON_TEST_SEATS, such as 5m, and prints the frames of each run, the ratio,
// and the 95 % interval of the ratio.
func TestSeatsAgainstAQuota(t *testing.T) {
	limit, err := time.ParseDuration(os.Getenv("TENON_TEST_SEATS"))
	if err != nil {
		t.Skip("a measurement: TENON_TEST_SEATS=5m runs it for five minutes")
	}
	needPrograms(t, "ffmpeg")
	s := plantSite(t, limitedTo(1, false))
	if all := s.cpus("services"); all.Len() != 2 {
		t.Skipf("written for 2 CPUs, this machine has %d", all.Len())
	}
	s.endPrograms()
	d := s.tenond()
	for jobs := 1; jobs <= 2; jobs++ {
		frames, spent := map[bool]stat.Sample{true: {}, false: {}}, map[bool]stat.Sample{true: {}, false: {}}
		begun := time.Now()
		for block := 0; time.Since(begun) < limit/2; block++ {
			first := rand.IntN(2) == 0
			for _, seats := range []bool{first, !first} {
				r := s.measurePace(d, seats, jobs)
				t.Logf("jobs %d block %d seats %-5v frames/s %.2f cpu-s/frame %.5f throttled %d of %d periods", jobs, block, seats, r.frames, r.spent, r.throttled, r.periods)
				frames[seats][block], spent[seats][block] = r.frames, r.spent
				if seats && r.throttled > 0 {
					t.Errorf("%d throttled periods with seats", r.throttled)
				}
			}
		}
		f, c := stat.Ratio(frames[true], frames[false], paired.Rule{}), stat.Ratio(spent[true], spent[false], paired.Rule{})
		t.Logf("jobs %d, seats against quota, %d blocks: frames/s %.3f (%.3f to %.3f, lower bound %.3f); cpu-s/frame %.3f (%.3f to %.3f)",
			jobs, f.Blocks, f.Value, f.Low, f.High, f.Lower, c.Value, c.Low, c.High)
	}
	d.stop()
}

// A pace is the result of all encoders together in a window.
type pace struct {
	frames, spent      float64 // frames per second, CPU time per frame
	throttled, periods int64
}

// measurePace starts encoders, waits for two seconds, and then measures for
// eight seconds.
func (s *site) measurePace(d *daemon, seats bool, jobs int) pace {
	s.t.Helper()
	s.configure(limitedTo(1, seats))
	d.signal(syscall.SIGHUP)
	var all []*encoder
	for i := range jobs {
		group := fmt.Sprintf("batch/encode-%d", i)
		s.check(s.tree.Make(string(s.path(group))))
		all = append(all, &encoder{s: s, group: group})
	}
	eventually(s.t, fmt.Sprintf("each encoder has a seat: %v", seats), func() bool {
		for _, e := range all {
			if one := s.cpus(e.group).Len() == 1; one != seats || seats != (e.quota() == node.NoQuota) {
				return false
			}
		}
		return true
	})
	for i := range all {
		all[i] = s.encode(all[i].group)
	}
	time.Sleep(2 * time.Second)
	type reading struct {
		frames int
		use    cgroup.CPUUse
	}
	before := make([]reading, jobs)
	begun := time.Now()
	for i, e := range all {
		before[i] = reading{e.frames(), e.use()}
	}
	time.Sleep(8 * time.Second)
	elapsed := time.Since(begun)
	var p pace
	var done int
	var used time.Duration
	for i, e := range all {
		now := e.use()
		done += e.frames() - before[i].frames
		used += now.Usage - before[i].use.Usage
		p.throttled += now.ThrottledPeriods - before[i].use.ThrottledPeriods
		p.periods += now.Periods - before[i].use.Periods
	}
	for _, e := range all {
		e.kill()
		s.check(s.tree.RemoveAll(string(s.path(e.group))))
	}
	p.frames, p.spent = float64(done)/elapsed.Seconds(), used.Seconds()/float64(max(done, 1))
	return p
}
