package outlook

import (
	"fmt"
	"html/template"
	"math"
	"time"

	"tenon.sh/tenon/internal/decide/prospect"
	"tenon.sh/tenon/internal/lab/chart"
)

// hoursKey explains the colours of the pictures by hour.
const hoursKey template.HTML = `<li><svg viewBox="0 0 30 10"><rect width="30" height="10" class="ls"/></svg>used</li>` +
	`<li><svg viewBox="0 0 30 10"><rect width="30" height="10" class="be"/></svg>room for batch work in 95% of the time</li>` +
	`<li><svg viewBox="0 0 30 10"><rect width="30" height="10" class="be over"/></svg>room on average</li>` +
	`<li><svg viewBox="0 0 30 10"><line x1="0" y1="5" x2="30" y2="5" class="limit"/></svg>capacity</li>`

// hoursPicture draws the room over the use by hour of the day, in units of scale. An hour
// that was not measured is empty.
func hoursPicture[T amount](s prospect.Supply[T], unit string, scale float64, print func(T) string) template.HTML {
	const width, height, left, right, top, bottom = 920, 270, 62, 12, 14, 44
	if s.Capacity <= 0 {
		return ""
	}
	d := chart.New(width, height, fmt.Sprintf("%s that batch work could have had by hour of the day, over what was used", unit))
	x := chart.Axis{Low: 0, High: float64(len(s.Hours)), Begin: left, End: width - right}
	y := chart.Axis{Low: 0, High: float64(s.Capacity) / scale * 1.04, Begin: height - bottom, End: top}
	at := func(v T) float64 { return y.At(min(float64(v)/scale, y.High)) }
	for _, v := range y.Ticks(5) {
		d.Line(left, y.At(v), width-right, y.At(v), "grid")
		d.Text(left-8, y.At(v)+4, "tick end", fmt.Sprintf("%g", v))
	}
	for h, of := range s.Hours {
		begin, wide := x.At(float64(h))+2, x.At(1)-x.At(0)-4
		if h%everyHours == 0 {
			d.Text(x.At(float64(h)), height-bottom+18, "tick middle", hour(h))
		}
		if of.Steps == 0 {
			continue
		}
		used, known := of.Used.Value()
		title := fmt.Sprintf("%s: room of %s in 95%% of the time, %s on average", hour(h), print(of.Low), print(of.Mean))
		if known {
			title += ", used " + print(used)
			d.Rect(begin, at(used), wide, at(0)-at(used), "ls", title)
		}
		d.Rect(begin, at(used+of.Mean), wide, at(used)-at(used+of.Mean), "be over", title)
		d.Rect(begin, at(used+of.Low), wide, at(used)-at(used+of.Low), "be", title)
	}
	d.Line(left, at(s.Capacity), width-right, at(s.Capacity), "limit")
	d.Line(left, y.Begin, width-right, y.Begin, "axis")
	d.Text((left+width-right)/2, height-6, "label middle", "hour of the day (UTC)")
	d.Text(left-8, top+2, "label end", unit)
	return d.HTML()
}

// risksPicture draws a map of the risks: a field for each length and part, once for CPU and
// once for memory. Deep is every second job.
func risksPicture(risks []prospect.Risk) template.HTML {
	const width, left, top, bottom, wide, high, gap = 920, 76, 30, 44, 120, 40, 60
	d := chart.New(width, top+bottom+high*float64(len(prospect.Lengths)), "share of jobs that would have failed, by their length and by how far the room is filled")
	of := func(length time.Duration, fill int) (found prospect.Risk) {
		for _, r := range risks {
			if r.Length == length && r.Fill == prospect.Fills[fill] {
				found = r
			}
		}
		return found
	}
	for kind, name := range []string{"short of CPU", "short of memory"} {
		begin := left + float64(kind)*(wide*float64(len(prospect.Fills))+gap)
		d.Text(begin, top-12, "label start", name)
		for i, length := range prospect.Lengths {
			y := top + high*float64(i)
			if kind == 0 {
				d.Text(left-10, y+high/2+4, "tick end", span(length))
			}
			for j := range prospect.Fills {
				r := of(length, j)
				t := r.CPU
				if kind == 1 {
					t = r.Memory
				}
				field(d, begin+wide*float64(j), y, wide-3, high-3, t)
			}
		}
		for j, fill := range prospect.Fills {
			d.Text(begin+wide*(float64(j)+0.5), top+high*float64(len(prospect.Lengths))+18, "tick middle", "filled to "+fill.String())
		}
	}
	return d.HTML()
}

// field draws a share of jobs. Its shade is the root of the share, so that small risks
// differ, too.
func field(d *chart.Drawing, x, y, w, h float64, t prospect.Trials) {
	if t.Jobs == 0 {
		d.Line(x, y+h, x+w, y, "grid")
		return
	}
	shade := min(math.Sqrt(2*float64(t.Failed)/float64(t.Jobs)), 1)
	d.Group(fmt.Sprintf("--s:%.2f", shade))
	d.Rect(x, y, w, h, "heat", fmt.Sprintf("%d of %d jobs, %s", t.Failed, t.Jobs, risk(t)))
	class := "heat-light middle"
	if shade > 0.5 {
		class = "heat-dark middle"
	}
	d.Text(x+w/2, y+h/2+4, class, share(t))
	d.End()
}

// colours of the lengths of promises.
var colours = []string{"--c:var(--m-tenon)", "--c:var(--m-default)", "--c:var(--m-sched-idle)"}

// promisesPicture draws the share of kept promises of CPU with its interval, beside the
// probability that they said.
func promisesPicture(f prospect.Fleet) template.HTML {
	least, judged := 1000.0, false
	for _, k := range f.CPU.Promised {
		if k.Judged > 0 {
			least, judged = min(least, float64(k.Least)), true
		}
	}
	if !judged {
		return ""
	}
	const width, height, left, right, top, bottom = 920, 240, 62, 20, 16, 44
	d := chart.New(width, height, "share of promises of CPU that came true, beside the probability that they said")
	n := float64(len(f.CPU.Promised))
	x := chart.Axis{Low: 0, High: n, Begin: left, End: width - right}
	y := chart.Axis{Low: max(math.Floor(least/100)*10-5, 0), High: 101, Begin: height - bottom, End: top}
	for _, v := range y.Ticks(6) {
		d.Line(left, y.At(v), width-right, y.At(v), "grid")
		d.Text(left-8, y.At(v)+4, "tick end", fmt.Sprintf("%g%%", v))
	}
	length := -1
	for i, k := range f.CPU.Promised {
		middle, said := x.At(float64(i)+0.5), y.At(float64(k.Percent))
		if i == 0 || k.Hours != f.CPU.Promised[i-1].Hours {
			length++
		}
		d.Text(middle, height-bottom+18, "tick middle", fmt.Sprintf("%d h, %v", k.Hours, k.Percent))
		d.Line(middle-34, said, middle+34, said, "mark")
		if k.Judged == 0 {
			continue
		}
		came := y.At(100 * float64(k.Kept) / float64(k.Judged))
		d.Group(colours[length%len(colours)])
		d.Line(middle, y.At(float64(k.Least)/10), middle, y.At(float64(k.Most)/10), "interval")
		d.Rect(middle-5, came-5, 10, 10, "estimate", fmt.Sprintf("%d of %d kept, said %v", k.Kept, k.Judged, k.Percent))
		d.End()
	}
	d.Line(left, y.Begin, width-right, y.Begin, "axis")
	d.Text((left+width-right)/2, height-6, "label middle", "length and probability; dashed: what was said")
	return d.HTML()
}

// daysPicture draws the share of kept promises by day, a colour for each length. A day with
// fewer than chance explains is red.
func daysPicture(days []prospect.Day) template.HTML {
	if len(days) == 0 || days[0].Day == days[len(days)-1].Day {
		return ""
	}
	const width, height, left, right, top, bottom = 920, 200, 62, 20, 16, 44
	d := chart.New(width, height, "share of promises that came true on each day")
	first, last := float64(days[0].Day), float64(days[len(days)-1].Day+1)
	x := chart.Axis{Low: first, High: last, Begin: left, End: width - right}
	y := chart.Axis{Low: 0, High: 104, Begin: height - bottom, End: top}
	for _, v := range y.Ticks(5) {
		d.Line(left, y.At(v), width-right, y.At(v), "grid")
		d.Text(left-8, y.At(v)+4, "tick end", fmt.Sprintf("%g%%", v))
	}
	d.Line(left, y.At(float64(prospect.DayPercent)), width-right, y.At(float64(prospect.DayPercent)), "mark")
	lengths := map[int]int{}
	for _, day := range days {
		if _, seen := lengths[day.Hours]; !seen {
			lengths[day.Hours] = len(lengths)
		}
		colour := colours[lengths[day.Hours]%len(colours)]
		if day.Fit() == prospect.FitSeldom {
			colour = "--c:var(--bad)"
		}
		kept := 100 * float64(day.Kept) / float64(day.Judged)
		d.Group(colour)
		d.Rect(x.At(float64(day.Day)+0.5)-12+8*float64(lengths[day.Hours]), y.At(kept)-4, 8, 8, "estimate",
			fmt.Sprintf("%s: %d of %d promises for %d h kept", date(day.Day), day.Kept, day.Judged, day.Hours))
		d.End()
	}
	d.Text(left, height-bottom+18, "tick start", date(days[0].Day))
	d.Text(width-right, height-bottom+18, "tick end", date(days[len(days)-1].Day))
	d.Line(left, y.Begin, width-right, y.Begin, "axis")
	d.Text((left+width-right)/2, height-6, "label middle", "promises for 1 h, 6 h and 24 h, from left to right; dashed: what was said; red: fewer than chance explains")
	return d.HTML()
}
