package run

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"slices"
	"time"

	"tenon.sh/tenon/internal/lab/colocation"
	"tenon.sh/tenon/internal/lab/harness"
	"tenon.sh/tenon/internal/lab/load"
	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/lab/testbed"
	"tenon.sh/tenon/internal/lab/work"
)

// ownModes returns the default modes for workloads of the user. It leaves out
// the modes that compare at equal CPU use, because these need ffmpeg.
func ownModes() []report.Mode {
	return slices.DeleteFunc(slices.Clone(AllModes), func(m report.Mode) bool { return m.Spec().Paced || m.Spec().Suppress })
}

// checkOwn calls fault for each setting that does not fit the workloads of the
// user.
func (c Config) checkOwn(fault func(format string, args ...any)) {
	if c.Client == harness.ClientWrk && c.Workloads.AreCustom() {
		fault("--client %s is for nginx beside ffmpeg", c.Client)
	}
	if !slices.Contains(c.Workloads.Batch, "ffmpeg") && (c.BEProcesses != 0 || c.BEThreads != 0 || c.Input != "") {
		fault("--be-processes, --be-threads and --input are for ffmpeg, which is not among --batch")
	}
	for _, m := range c.Modes {
		if m.Spec().Paced && slices.ContainsFunc(c.Workloads.Batch, func(name string) bool { return name != "ffmpeg" }) {
			fault("mode %s paces ffmpeg: leave it out with --modes", m)
		}
	}
}

// findWorkloads finds the programs of the service and of the batch work that the
// user brings.
func (b *machine) findWorkloads(ctx context.Context) error {
	if !b.Workloads.Self() {
		var version string
		var err error
		if b.service, version, err = work.FindService(ctx, b.Site, b.Workloads.Service, b.Port, b.Place.Tested.Len(), b.connections()); err != nil {
			return err
		}
		if version != "" {
			b.versions[b.service.Name] = version
		}
		b.service.Ready = b.Workloads.Ready
		if b.Workloads.Load != "" && !b.Workloads.ByCommand() {
			b.service.URL = b.Workloads.Load
			if err := checkUnoccupied(b.service.URL); err != nil {
				return err
			}
		}
	}
	if !b.Workloads.AreCustom() {
		return nil
	}
	dir, err := b.Directory("")
	if err != nil {
		return err
	}
	var line *regexp.Regexp
	if b.Workloads.WorkRegexp != "" {
		line = regexp.MustCompile(b.Workloads.WorkRegexp)
	}
	for _, name := range b.Workloads.Batch {
		w, err := work.FindWork(b.Site, name, line, dir)
		if err != nil {
			return err
		}
		b.works = append(b.works, w)
	}
	return nil
}

// checkUnoccupied returns an error if a program answers at the service's URL
// before the service starts. The load would go to that program.
func checkUnoccupied(at string) error {
	u, err := url.Parse(at)
	if err != nil {
		return err
	}
	if u.Port() == "" {
		return nil
	}
	c, err := net.DialTimeout("tcp", u.Host, time.Second)
	if err != nil {
		return nil
	}
	_ = c.Close()
	return fmt.Errorf("--load %s: another program listens there already", at)
}

// target returns the URL to which the load is sent.
func (b *machine) target() string {
	switch {
	case b.Workloads.Self():
		return fmt.Sprintf("itself, %d threads with %v bytes each", b.describeSelf().Threads, b.describeSelf().Memory)
	case b.Workloads.Load != "":
		return b.Workloads.Load
	}
	return b.service.URL
}

// start starts the service of a mode.
func (st *runSetUp) start(ctx context.Context, t report.ModeSpec) (*testbed.Process, error) {
	b := st.b
	if b.Workloads.Self() {
		p, driven, err := work.StartSelf(b.Site, b.describeSelf(), testbed.Child{Group: st.pods.NGINX(), CPUs: b.Place.Tested, Session: t.Sessions})
		st.self = driven
		return p, err
	}
	s := b.service
	s.Session = t.Sessions
	return s.Start(ctx, b.Host, st.pods.NGINX(), b.Place.Tested)
}

// jobs returns the batch work of a mode.
func (b *machine) jobs(t report.ModeSpec, rate float64) []work.Job {
	if len(b.works) == 0 {
		return []work.Job{b.transcode(t, rate)}
	}
	var jobs []work.Job
	for _, w := range b.works {
		j := w.Job()
		if w.Name == "ffmpeg" {
			j = b.transcode(t, rate)
		}
		j.Session, j.Nice, j.SchedIdle = t.Sessions, t.Nice, t.SchedIdle
		jobs = append(jobs, j)
	}
	return jobs
}

// ownRecord describes the workloads that the user brings, for experiment.json.
func (b *machine) ownRecord() *colocation.Own {
	if !b.Workloads.AreCustom() {
		return nil
	}
	o := &colocation.Own{Service: b.service.Name, Load: b.target(), Command: b.service.Argv}
	if b.Workloads.Self() {
		o.Service = b.Workloads.Service
	}
	for i, w := range b.works {
		o.Batch = append(o.Batch, colocation.OwnWork{Name: w.Name, Command: w.Argv, Unit: w.Unit, Solo: b.solo[i]})
	}
	return o
}

// describeSelf returns the description of a service that generates its own load.
func (b *machine) describeSelf() load.Self {
	threads := b.Workloads.SelfThreads
	if threads == 0 {
		threads = b.Place.Tested.Len()
	}
	return load.Self{Threads: threads, Memory: b.Workloads.SelfMemory}
}

// loadSelf makes the service generate its own load.
func (st *runSetUp) loadSelf(ctx context.Context, order load.Config) (harness.Measurement, error) {
	order.CPUs = st.b.Place.Tested
	r, err := st.self.Load(ctx, order)
	if err != nil {
		return harness.Measurement{}, err
	}
	return harness.Loaded(r, order)
}
