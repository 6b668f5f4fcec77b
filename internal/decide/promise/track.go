package promise

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"tenon.sh/tenon/internal/model/unit"
)

const (
	// keep is the number of past hours that count: ten days, so that each hour of the
	// day was seen ten times, and a step is forgotten soon.
	keep = 10 * 24
	// day is the number of hours whose mean is the present level of the room.
	day = 24
	// enough is the number of minutes that an hour needs. An hour with fewer is a
	// hole: its least value is not known.
	enough = 45
	// halveAt is the number of judged promises at which all counts are halved, so
	// that they cover four to eight weeks.
	halveAt = 8 * 7 * 24

	hole = -1 // in Past: the least room of the hour is not known
)

// needed is the number of past windows from which on there is a promise, by the
// length. Long windows overlap, so they need more: 120 windows of 24 hours, and the
// day before them, are a week.
var needed = [len(Hours)]int{48, 72, 120}

// A track holds the room of one resource, in whole units.
type track struct {
	Begun bool  `json:"begun,omitempty"`
	Hour  int64 `json:"hour,omitempty"` // the hour that is being measured, since 1970
	Last  int64 `json:"last,omitempty"` // the last minute with a value, since 1970
	Now   int64 `json:"now,omitempty"`  // the last value
	Seen  int   `json:"seen,omitempty"` // minutes with a value in this hour
	// Least is the least value of this hour. It counts only if Seen is not 0.
	Least int64 `json:"least,omitempty"`
	// Past has the least value of each ended hour, the oldest first. The last one
	// is of the hour before Hour.
	Past []int64 `json:"past,omitempty"`
	// Windows is the number of past windows on which the present promises rest, by
	// their length.
	Windows [len(Hours)]int `json:"windows"`
	// Aims has one aim for each length and level.
	Aims [len(Hours)][len(Levels)]aim `json:"aims"`
}

// observe adds the value of a minute.
func (t *track) observe(minute, value int64) {
	if minute < 0 || minute > most {
		return // no clock says so
	}
	value = min(max(value, 0), most)
	hour := minute / 60
	switch {
	case !t.Begun:
		t.Begun, t.Hour = true, hour
		t.Now = value
		t.promise()
	case hour == t.Hour-1:
		return // the clock was set back by some seconds: this hour was judged
	case hour < t.Hour || hour > t.Hour+keep:
		// The clock was set, or the agent was away for weeks. Open promises have no end.
		t.restart(hour)
		t.Now = value
		t.promise()
	case hour > t.Hour:
		t.Now = value
		for t.Hour < hour {
			t.endHour()
			if t.Hour < hour {
				t.promiseNothing()
			}
		}
		t.promise()
	}
	if t.Seen == 0 || value < t.Least {
		t.Least = value
	}
	if minute != t.Last || t.Seen == 0 {
		t.Seen++
	}
	t.Now, t.Last = value, minute
}

// restart begins anew at an hour that does not follow the present one. What the
// aims have learnt stays.
func (t *track) restart(hour int64) {
	t.Hour, t.Seen, t.Past = hour, 0, nil
	for h := range t.Aims {
		for l := range t.Aims[h] {
			t.Aims[h][l].Open = nil
		}
	}
}

// endHour judges the open promises by the hour that has ended, and begins the
// next one.
func (t *track) endHour() {
	least := int64(hole)
	if t.Seen >= enough {
		least = t.Least
	}
	t.Past = append(t.Past, least)
	if len(t.Past) > keep {
		t.Past = slices.Delete(t.Past, 0, len(t.Past)-keep)
	}
	for h, hours := range Hours {
		ended := int64(hole) // the least room of the window that ends now
		if n := len(t.Past); n >= hours {
			ended = leastOf(t.Past[n-hours:])
		}
		var before []sample // the windows that had ended when it began, made if needed
		for l, percent := range Levels {
			a := &t.Aims[h][l]
			for i, p := range a.Open {
				if p < 0 {
					continue
				}
				began := t.Hour - int64(len(a.Open)-1-i)
				switch {
				case t.Seen > 0 && t.Least < p:
					a.Open[i] = broken(p)
					a.learn(h, percent, began, true)
				case least == hole:
					a.Open[i] = notMade // no one saw whether it was kept
				}
			}
			if len(a.Open) < hours {
				continue
			}
			p := a.Open[0]
			a.Open = slices.Delete(a.Open, 0, 1)
			if p >= 0 {
				a.learn(h, percent, t.Hour-int64(hours)+1, false)
			}
			if p == notMade || ended == hole {
				continue
			}
			if before == nil {
				before = t.plain(hours, len(t.Past)-hours)
			}
			a.score(percent, promised(p), ended, before)
		}
	}
	t.Hour++
	t.Seen = 0
}

func (t *track) promiseNothing() {
	for h := range t.Aims {
		t.Windows[h] = 0
		for l := range t.Aims[h] {
			t.Aims[h][l].Open = append(t.Aims[h][l].Open, notMade)
		}
	}
}

// promise makes the promises that begin with the present hour. A longer or surer
// promise is never larger, and none is larger than the room of now. The aims
// learn from what was promised in the end, so that these bounds do not spoil
// the probabilities.
func (t *track) promise() {
	levels := t.levels()
	level := levels[len(t.Past)]
	var values [len(Hours)][len(Levels)]int64
	for h, hours := range Hours {
		var samples []sample
		if level != hole {
			samples = t.samples(hours, levels)
		}
		t.Windows[h] = len(samples)
		for l, percent := range Levels {
			v := int64(notMade)
			if len(samples) >= needed[h] {
				v = min(t.Aims[h][l].value(percent, t.Hour, level, samples), t.Now)
				if l > 0 {
					v = min(v, values[h][l-1])
				}
				if h > 0 && values[h-1][l] != notMade {
					v = min(v, values[h-1][l])
				}
			}
			values[h][l] = v
			t.Aims[h][l].Open = append(t.Aims[h][l].Open, v)
		}
	}
}

// levels returns, for each past hour and for the present one, the mean of the day
// before it, or hole if half of that day is not known.
func (t *track) levels() []int64 {
	levels := make([]int64, len(t.Past)+1)
	var sum, n int64
	for i := range levels {
		levels[i] = hole
		if i >= day && n >= day/2 {
			levels[i] = sum / n
		}
		if i < len(t.Past) && t.Past[i] != hole {
			sum, n = sum+t.Past[i], n+1
		}
		if i >= day && t.Past[i-day] != hole {
			sum, n = sum-t.Past[i-day], n-1
		}
	}
	return levels
}

// A sample is the least room of a past window, and its weight.
type sample struct{ value, weight int64 }

// nearness is the weight of a window that began at the hour of the day of now, one
// hour beside it, and so on. Room follows the day, so such windows say more. All
// others have the last weight: ten days have too few windows of one hour of the
// day for the rare values that a sure promise needs.
var nearness = [...]int64{16, 8, 4, 1}

// samples returns the past windows of a length, in ascending order. Their values
// are relative to the level of the day before each window, so that a step of the
// room, such as a service that moves to another node, is forgotten after a day.
func (t *track) samples(hours int, levels []int64) []sample {
	samples := make([]sample, 0, len(t.Past))
	for i := day; i+hours <= len(t.Past); i++ {
		least := leastOf(t.Past[i : i+hours])
		if least == hole || levels[i] == hole {
			continue
		}
		apart := (len(t.Past) - i) % 24
		apart = min(apart, 24-apart, len(nearness)-1)
		samples = append(samples, sample{least - levels[i], nearness[apart]})
	}
	slices.SortFunc(samples, func(a, b sample) int { return cmp.Compare(a.value, b.value) })
	return samples
}

// plain returns the windows of a length that had ended before Past[end], in
// ascending order, with equal weights and absolute values: the climatology with
// which promises are compared.
func (t *track) plain(hours, end int) []sample {
	samples := make([]sample, 0, len(t.Past))
	for i := 0; i+hours <= end; i++ {
		if least := leastOf(t.Past[i : i+hours]); least != hole {
			samples = append(samples, sample{least, 1})
		}
	}
	slices.SortFunc(samples, func(a, b sample) int { return cmp.Compare(a.value, b.value) })
	return samples
}

// leastOf returns the least of some hours, or hole if one of them is a hole.
func leastOf(hours []int64) int64 { return slices.Min(hours) } // hole is below all values

// check refuses a track that observe could not have made.
func (t *track) check() error {
	if len(t.Past) > keep || slices.ContainsFunc(t.Past, func(v int64) bool { return v < hole || v > most }) {
		return errors.New("the past hours have a wrong number or value")
	}
	if t.Least < 0 || t.Now < 0 || t.Seen < 0 || t.Least > most || t.Now > most {
		return errors.New("a value of the present hour is out of range")
	}
	if t.Hour < 0 || t.Hour > most || t.Last < 0 || t.Last > most {
		return errors.New("the time is out of range")
	}
	for h, hours := range Hours {
		if t.Windows[h] < 0 || t.Windows[h] > keep {
			return errors.New("the number of past windows is out of range")
		}
		for l, percent := range Levels {
			if err := t.Aims[h][l].check(min(hours, int(t.Hour)+1), percent, t.Begun); err != nil {
				return fmt.Errorf("%d hours with %v: %w", hours, percent, err)
			}
		}
	}
	return nil
}

// most is the greatest value, hour and minute of a track. It keeps sums of losses
// within an int64.
const most = 1 << 36

func (a *aim) check(windows int, percent unit.Percent, begun bool) error {
	if len(a.Open) > windows || begun != (len(a.Open) > 0) {
		return errors.New("the open promises have a wrong number")
	}
	if slices.ContainsFunc(a.Open, func(p int64) bool { return p < broken(most) || p > most }) {
		return errors.New("an open promise is out of range")
	}
	if a.Shift != bounded(a.Shift, percent) {
		return errors.New("the quantile is out of range")
	}
	for _, v := range a.ByHour {
		if v < -mostByHour || v > mostByHour {
			return errors.New("the quantile of an hour of the day is out of range")
		}
	}
	if a.Kept < 0 || a.Kept > a.Judged || a.Judged > halveAt || min(a.Loss, a.Plain) < 0 || max(a.Loss, a.Plain) > 100*most*halveAt {
		return errors.New("the counts are out of range")
	}
	return nil
}
