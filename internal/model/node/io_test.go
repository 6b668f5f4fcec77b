package node

import (
	"testing"
	"time"

	"tenon.sh/tenon/internal/model/unit"
)

var (
	vda = unit.Device{Major: 254}
	sda = unit.Device{Major: 8}
)

func TestIOValuesPrintWhatTheyParse(t *testing.T) {
	for name, c := range map[string]struct {
		file File
		text string
	}{
		"no limit":       {FileIOMax, "max"},
		"limits":         {FileIOMax, "8:0 rbps=1048576 wiops=100, 254:0 wbps=1"},
		"weight":         {FileIOWeight, "100"},
		"weights of bfq": {FileBFQWeight, "100, 8:0 50, 254:0 1000"},
		"no target":      {FileIOLatency, "none"},
		"targets":        {FileIOLatency, "254:0 3000"},
	} {
		v, err := ParseValue(c.file, c.text)
		if err != nil || v.String() != c.text {
			t.Errorf("%s: %q reads as %v, %v", name, c.text, v, err)
		}
	}
	for name, c := range map[string]struct {
		file File
		text string
	}{
		"a device without number": {FileIOMax, "vda rbps=1"},
		"an unknown rate":         {FileIOMax, "8:0 speed=1"},
		"a negative rate":         {FileIOMax, "8:0 rbps=-1"},
		"no weight":               {FileIOWeight, ""},
		"a word for a target":     {FileIOLatency, "8:0 soon"},
	} {
		if v, err := ParseValue(c.file, c.text); err == nil {
			t.Errorf("%s: %q reads as %v", name, c.text, v)
		}
	}
}

func TestALineWithoutLimitsIsNone(t *testing.T) {
	open := IOMaxOf(map[unit.Device]IOLimits{vda: NoIOLimits})
	if open != (IOMax{}) || open.String() != "max" {
		t.Errorf("no limit on a device is %v", open)
	}
	huge := IOMaxOf(map[unit.Device]IOLimits{vda: NoIOLimits.Smaller(IOLimits{NoIORate, NoIORate, 1<<32 - 1, 1 << 40})})
	if got := huge.Round(Kernel{}); got != (IOMax{}) {
		t.Errorf("%v rounds to %v, which the kernel cannot count", huge, got)
	}
	if got := IOLatencyOf(map[unit.Device]time.Duration{vda: 900 * time.Nanosecond}); got != (IOLatency{}) {
		t.Errorf("a target below 1 µs is %v", got)
	}
}

func TestNarrowerOrdersIOValues(t *testing.T) {
	limits := func(d unit.Device, read int64) IOMax {
		l := NoIOLimits
		l.ReadBPS = read
		return IOMaxOf(map[unit.Device]IOLimits{d: l})
	}
	for name, c := range map[string]struct{ narrow, wide Value }{
		"a limit below none":            {limits(vda, 5), IOMax{}},
		"a limit below a larger one":    {limits(vda, 5), limits(vda, 6)},
		"a weight for a device":         {IOWeightOf(100, map[unit.Device]int64{vda: 50}), IOWeightOf(100, nil)},
		"a default weight":              {IOWeightOf(50, nil), IOWeightOf(100, nil)},
		"a device's and not the others": {IOWeightOf(50, map[unit.Device]int64{vda: 100}), IOWeightOf(100, nil)},
	} {
		if c.narrow.CompareWidth(c.wide) >= 0 || c.wide.CompareWidth(c.narrow) <= 0 || c.wide.CompareWidth(c.wide) != 0 {
			t.Errorf("%s: %v against %v", name, c.narrow, c.wide)
		}
	}
	if limits(vda, 5).CompareWidth(limits(sda, 5)) != 0 {
		t.Error("limits on different devices cannot be compared")
	}
	fast := IOLatencyOf(map[unit.Device]time.Duration{vda: time.Millisecond})
	if fast.CompareWidth(IOLatency{}) != 0 {
		t.Error("a target narrows nothing for the group that has it")
	}
}

func FuzzParseIOValue(f *testing.F) {
	for _, s := range []string{"max", "none", "100", "8:0 rbps=1 wbps=2", "8:0 5, 254:0 6", "100, 8:0 50", "08:0 rbps=9223372036854775807"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for _, file := range IOFiles {
			v, err := ParseValue(file, s)
			if err != nil {
				continue
			}
			if back, err := ParseValue(file, v.String()); err != nil || back != v {
				t.Fatalf("%s %q reads as %v, which reads as %v, %v", file, s, v, back, err)
			}
		}
	})
}
