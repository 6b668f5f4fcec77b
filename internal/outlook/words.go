package outlook

import (
	"fmt"
	"math"
	"time"

	"tenon.sh/tenon/internal/decide/prospect"
	"tenon.sh/tenon/internal/lab/textlayout"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

type amount interface{ unit.MilliCPU | unit.Bytes }

const minutesOfDay = 24 * 60

// cores prints an amount of CPU in CPUs.
func cores(v unit.MilliCPU) string { return decimal(v.Cores()) }

// size prints an amount of memory with the unit in which it has few digits.
func size(v unit.Bytes) string {
	switch {
	case v >= 4<<40:
		return decimal(float64(v)/(1<<40)) + " TiB"
	case v >= 1<<30:
		return decimal(float64(v)/(1<<30)) + " GiB"
	}
	return fmt.Sprintf("%d MiB", v>>20)
}

func decimal(v float64) string {
	if v >= 100 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.1f", v)
}

func maybe[T amount](v node.Maybe[T], print func(T) string) string {
	if value, known := v.Value(); known {
		return print(value)
	}
	return "-"
}

func hour(h int) string { return fmt.Sprintf("%02d:00", h) }

func minute(at int64) string { return time.Unix(at*60, 0).UTC().Format("2006-01-02 15:04") }

func date(day int64) string { return time.Unix(day*minutesOfDay*60, 0).UTC().Format(time.DateOnly) }

// days prints a number of minutes as days, or in a smaller unit if they are less than two.
func days(minutes int64) string {
	switch {
	case minutes < 2*60:
		return textlayout.Plural(int(minutes), "minute", "minutes")
	case minutes < 2*minutesOfDay:
		return textlayout.Plural(int((minutes+30)/60), "hour", "hours")
	}
	return fmt.Sprintf("%d days", (minutes+minutesOfDay/2)/minutesOfDay)
}

func span(d time.Duration) string {
	if d < time.Hour {
		return fmt.Sprintf("%d min", d/time.Minute)
	}
	return fmt.Sprintf("%d h", d/time.Hour)
}

// lost prints a time with two digits or more.
func lost(d time.Duration) string {
	switch {
	case d >= 2*time.Hour:
		return fmt.Sprintf("%.1f h", d.Hours())
	case d >= 2*time.Minute:
		return fmt.Sprintf("%.1f min", d.Minutes())
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}

// share prints how many of the jobs failed. None of some is not the same as too few of many
// to be seen.
func share(t prospect.Trials) string {
	switch {
	case t.Jobs == 0:
		return "-"
	case t.Failed == 0:
		return "0"
	case t.Failed*1000 < t.Jobs:
		return "< 0.1%"
	}
	return fmt.Sprintf("%.1f%%", 100*float64(t.Failed)/float64(t.Jobs))
}

// risk prints a share of jobs with its interval in percent, if that is known.
func risk(t prospect.Trials) string {
	least, most, known := t.Interval()
	if !known {
		return share(t)
	}
	return fmt.Sprintf("%s (%s-%s)", share(t), percent(least, false), percent(most, true))
}

// percent prints an end of an interval, rounded outwards: in tenths below 10 %.
func percent(share float64, up bool) string {
	const noise = 1e-9 // of the arithmetic
	tenths := 1.0
	if share < 0.0995 {
		tenths = 10
	}
	v := math.Floor(100*tenths*share + noise)
	if up {
		v = math.Ceil(100*tenths*share - noise)
	}
	if v == 0 || tenths == 1 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.1f", v/tenths)
}
