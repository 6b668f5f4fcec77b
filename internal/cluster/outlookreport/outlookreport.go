// Package outlookreport converts the outlook of a node between two types: that of the
// cluster's API, and that of package prospect.
package outlookreport

import (
	"math"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tenon.sh/tenon/api/v1alpha1"
	"tenon.sh/tenon/internal/cluster/quantity"
	"tenon.sh/tenon/internal/decide/promise"
	"tenon.sh/tenon/internal/decide/prospect"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

const (
	mib = 1 << 20
	// mostHurt is the number of services in a report, and longestName the length of
	// their names, in bytes: an outlook has at most 4.5 KB in each of some thousand reports.
	mostHurt    = 8
	longestName = 34
	// mostDays is the number of days in a report.
	mostDays     = 16
	minutesOfDay = 24 * 60
	// unknown is a use, or the room of a day, that was not measured.
	unknown = -1
)

// Convert converts an outlook to the type of the cluster's API. The name of the node,
// its pool and its promises stand elsewhere. What past promises were like, by day and by
// hour (Days, Lasting), stays on the node: a report has no room for it.
func Convert(o prospect.Outlook) *v1alpha1.Outlook {
	cpu, memory := quantity.OfCPU(o.CPU), quantity.OfMemory(o.Memory)
	out := &v1alpha1.Outlook{
		Since: timeOf(o.From), Until: timeOf(o.To), StepMinutes: int32(o.Step), SeenMinutes: o.Seen,
		Capacity: v1alpha1.Usage{CPU: &cpu, Memory: &memory},
	}
	for _, h := range append(o.Hours[:], o.All) {
		appendHour(&out.MilliCPU, h.CPU, 1)
		appendHour(&out.MemoryMiB, h.Memory, mib)
	}
	out.Week = weekOf(o)
	for _, r := range o.Risks {
		to := &out.Risks
		to.LengthMinutes, to.FillPercent = append(to.LengthMinutes, int64(r.Length/time.Minute)), append(to.FillPercent, int64(r.Fill))
		to.CPUJobs, to.Starved = append(to.CPUJobs, r.CPU.Jobs), append(to.Starved, r.CPU.Failed)
		to.CPUDeviation, to.CPUFree = append(to.CPUDeviation, deviation(r.CPU)), append(to.CPUFree, r.CPU.Free)
		to.MemoryJobs, to.Evicted = append(to.MemoryJobs, r.Memory.Jobs), append(to.Evicted, r.Memory.Failed)
		to.MemoryDeviation, to.MemoryFree = append(to.MemoryDeviation, deviation(r.Memory)), append(to.MemoryFree, r.Memory.Free)
	}
	for _, h := range o.Hurt[:min(len(o.Hurt), mostHurt)] {
		out.Hurt = append(out.Hurt, v1alpha1.OutlookHurt{
			Service: nameOf(h.Service), By: nameOf(h.By), Minutes: h.Minutes, LostSeconds: int64(h.Lost / time.Second),
		})
	}
	return out
}

// weekOf converts the week of an outlook. One without working days or weekends is absent.
func weekOf(o prospect.Outlook) (out v1alpha1.OutlookWeek) {
	if o.Week.Weekdays.All.Steps == 0 && o.Week.Weekend.All.Steps == 0 {
		return out
	}
	for _, part := range []struct {
		to *v1alpha1.OutlookByHour
		of *prospect.Part
	}{{&out.WeekdayMilliCPU, &o.Week.Weekdays}, {&out.WeekendMilliCPU, &o.Week.Weekend}} {
		for _, s := range append(part.of.Hours[:], part.of.All) {
			appendHour(part.to, s, 1)
		}
	}
	for _, d := range o.Week.Days {
		i := d.Day - o.From/minutesOfDay
		if i < 0 || i >= mostDays {
			continue
		}
		for int64(len(out.DayMilliCPU)) < i {
			out.DayMilliCPU = append(out.DayMilliCPU, unknown)
		}
		out.DayMilliCPU = append(out.DayMilliCPU, int64(d.Mean))
	}
	return out
}

func deviation(t prospect.Trials) int64 { return int64(math.Ceil(math.Sqrt(t.Variance))) }

func appendHour[T unit.MilliCPU | unit.Bytes](to *v1alpha1.OutlookByHour, s prospect.Spread[T], scale T) {
	to.Measured, to.Low, to.Mean = append(to.Measured, s.Steps), append(to.Low, int64(s.Low/scale)), append(to.Mean, int64(s.Mean/scale))
	used := int64(unknown)
	if u, known := s.Used.Value(); known {
		used = int64(u / scale)
	}
	to.Used = append(to.Used, used)
}

func timeOf(minute int64) metav1.Time { return metav1.Unix(minute*60, 0) }

// nameOf shortens a name in its middle: pods differ at the beginning, and paths of
// cgroups at the end.
func nameOf(name string) string {
	name = strings.ToValidUTF8(name, "?")
	if len(name) <= longestName {
		return name
	}
	const mark = "..."
	part := (longestName - len(mark)) / 2
	return strings.ToValidUTF8(name[:part], "") + mark + strings.ToValidUTF8(name[len(name)-part:], "")
}

// Read returns the outlook of a report with the name of its node and its promises. The
// promises of an agent that only observes stand in its shadow. Read reports false if the
// report has no outlook.
func Read(name string, s *v1alpha1.NodeReportStatus) (o prospect.Outlook, has bool) {
	if s.Outlook == nil {
		return prospect.Outlook{}, false
	}
	in, promises := s.Outlook, s.Promises
	if s.Shadow != nil {
		promises = s.Shadow.Promises
	}
	o = prospect.Outlook{
		Name: name, From: in.Since.Unix() / 60, To: in.Until.Unix() / 60, Step: int64(in.StepMinutes), Seen: in.SeenMinutes,
		Promises: promisesOf(promises),
	}
	if q := in.Capacity.CPU; q != nil {
		o.CPU = quantity.CPU(*q, unit.Down)
	}
	if q := in.Capacity.Memory; q != nil {
		o.Memory = unit.Bytes(quantity.Whole(*q, unit.Down))
	}
	for i := range o.Hours {
		o.Hours[i] = prospect.Hour{CPU: hourOf[unit.MilliCPU](&in.MilliCPU, i, 1), Memory: hourOf[unit.Bytes](&in.MemoryMiB, i, mib)}
	}
	all := len(o.Hours)
	o.All = prospect.Hour{CPU: hourOf[unit.MilliCPU](&in.MilliCPU, all, 1), Memory: hourOf[unit.Bytes](&in.MemoryMiB, all, mib)}
	o.Week = readWeek(in)
	r := &in.Risks
	for i := range min(len(r.LengthMinutes), len(r.FillPercent), len(r.CPUJobs), len(r.Starved), len(r.MemoryJobs), len(r.Evicted)) {
		o.Risks = append(o.Risks, prospect.Risk{
			Length: time.Duration(r.LengthMinutes[i]) * time.Minute, Fill: unit.Percent(r.FillPercent[i]),
			CPU:    trialsOf(r.CPUJobs[i], r.Starved[i], r.CPUDeviation, r.CPUFree, i),
			Memory: trialsOf(r.MemoryJobs[i], r.Evicted[i], r.MemoryDeviation, r.MemoryFree, i),
		})
	}
	for _, h := range in.Hurt {
		o.Hurt = append(o.Hurt, prospect.Hurt{Service: h.Service, By: h.By, Minutes: h.Minutes, Lost: time.Duration(h.LostSeconds) * time.Second})
	}
	return o, true
}

func readWeek(in *v1alpha1.Outlook) (w prospect.Week) {
	w.Weekdays, w.Weekend = partOf(&in.Week.WeekdayMilliCPU), partOf(&in.Week.WeekendMilliCPU)
	first := in.Since.Unix() / 60 / minutesOfDay
	for i, mean := range in.Week.DayMilliCPU {
		if mean != unknown {
			w.Days = append(w.Days, prospect.DayRoom{Day: first + int64(i), Mean: unit.MilliCPU(mean)})
		}
	}
	return w
}

func partOf(in *v1alpha1.OutlookByHour) (p prospect.Part) {
	for i := range p.Hours {
		p.Hours[i] = hourOf[unit.MilliCPU](in, i, 1)
	}
	p.All = hourOf[unit.MilliCPU](in, len(p.Hours), 1)
	return p
}

func trialsOf(jobs, failed int64, deviations, free []int64, i int) prospect.Trials {
	t := prospect.Trials{Jobs: jobs, Failed: failed}
	if i < min(len(deviations), len(free)) {
		t.Variance, t.Free = float64(deviations[i])*float64(deviations[i]), free[i]
	}
	return t
}

// hourOf returns the numbers at a place of the lists. Without them, it was not measured.
func hourOf[T unit.MilliCPU | unit.Bytes](in *v1alpha1.OutlookByHour, i int, scale T) (s prospect.Spread[T]) {
	if i >= min(len(in.Measured), len(in.Low), len(in.Mean)) {
		return s
	}
	s.Steps, s.Low, s.Mean = in.Measured[i], T(in.Low[i])*scale, T(in.Mean[i])*scale
	if i < len(in.Used) && in.Used[i] != unknown {
		s.Used = node.Some(T(in.Used[i]) * scale)
	}
	return s
}

// promisesOf returns the promises of a report. The number of windows, which a report does
// not have, stays 0.
func promisesOf(p *v1alpha1.Promises) (all []promise.Promise) {
	if p == nil {
		return nil
	}
	for i := range min(len(p.CPU), len(p.Memory)) {
		cpu, memory := p.CPU[i], p.Memory[i]
		one := promise.Promise{Hours: int(cpu.Hours), Percent: unit.Percent(cpu.Percent), CPU: amountOf[unit.MilliCPU](cpu), Memory: amountOf[unit.Bytes](memory)}
		if cpu.Amount != nil {
			one.CPU.Value = quantity.CPU(*cpu.Amount, unit.Down)
		}
		if memory.Amount != nil {
			one.Memory.Value = unit.Bytes(quantity.Whole(*memory.Amount, unit.Down))
		}
		all = append(all, one)
	}
	return all
}

// amountOf returns an amount without its value.
func amountOf[T unit.MilliCPU | unit.Bytes](a v1alpha1.PromisedAmount) promise.Amount[T] {
	out := promise.Amount[T]{Code: promise.Unmeasured, Judged: a.Judged, Kept: a.Kept, Better: a.Better}
	if a.Skill != nil {
		out.SkillPercent = node.Some(unit.Percent(*a.Skill))
	}
	switch {
	case a.Amount != nil:
		out.Code = promise.Known
	case a.Lacking > 0:
		out.Code, out.Needed = promise.TooFew, int(a.Lacking)
	}
	return out
}
