package node

import "testing"

func TestSchemataPrintWhatTheyParse(t *testing.T) {
	for name, c := range map[string]struct {
		file       File
		text, want string // want "": the same as text
	}{
		"masks":              {FileL3, "0=7ff;8=f", ""},
		"out of order":       {FileL3, "8=0F;0=007", "0=7;8=f"},
		"code and data":      {FileL3, "code 0=7;1=7 data 0=1;1=3", ""},
		"bandwidth":          {FileMB, "0=100;1=2048", ""},
		"in one group":       {FileControlGroup, "BE", ""},
		"in several":         {FileControlGroup, "/,BE", ""},
		"the default group":  {FileControlGroup, "/", ""},
		"a name with a dash": {FileControlGroup, "kata-vm", ""},
	} {
		v, err := ParseValue(c.file, c.text)
		want := c.want
		if want == "" {
			want = c.text
		}
		if err != nil || v.String() != want {
			t.Errorf("%s: %q reads as %v, %v", name, c.text, v, err)
		}
	}
	for name, c := range map[string]struct {
		file File
		text string
	}{
		"nothing":               {FileL3, ""},
		"no cache":              {FileL3, "=7"},
		"twice":                 {FileL3, "0=7;0=7"},
		"no mask":               {FileL3, "0=ways"},
		"code without data":     {FileL3, "code 0=7"},
		"hexadecimal bandwidth": {FileMB, "0=ff"},
		"no group":              {FileControlGroup, ""},
		"a path":                {FileControlGroup, "a/b"},
		"not sorted":            {FileControlGroup, "BE,/"},
	} {
		if v, err := ParseValue(c.file, c.text); err == nil {
			t.Errorf("%s: %q reads as %v", name, c.text, v)
		}
	}
}

func TestBandwidthRoundsAsTheKernelDoes(t *testing.T) {
	percent := Kernel{MB: Bandwidth{Unit: BandwidthPercent, Least: 10, Step: 10, Most: 100}}
	eighths := Kernel{MB: Bandwidth{Unit: BandwidthEighths, Step: 1, Most: 2048}}
	for name, c := range map[string]struct {
		in     string
		kernel Kernel
		want   string
	}{
		"up to the next step":  {"0=31;1=30", percent, "0=40;1=30"},
		"into the bounds":      {"0=0;1=500", percent, "0=10;1=100"},
		"amounts stay":         {"0=33;1=4096", eighths, "0=33;1=2048"},
		"without rule nothing": {"0=33", Kernel{}, "0=33"},
	} {
		if got := (MB{c.in}).Round(c.kernel).String(); got != c.want {
			t.Errorf("%s: %s rounds to %s, want %s", name, c.in, got, c.want)
		}
	}
}

func TestFewerWaysAreNarrower(t *testing.T) {
	for name, c := range map[string]struct{ narrow, wide Value }{
		"in one cache":             {L3{"0=1;1=7"}, L3{"0=7;1=7"}},
		"for data alone":           {L3OfParts(Ways{0: 7}, Ways{0: 1}), L3Of(Ways{0: 7})},
		"bandwidth":                {MB{"0=10;1=100"}, MB{"0=100;1=100"}},
		"bandwidth below no limit": {MB{"0=5000"}, MB{"0=4294967295"}},
	} {
		if c.narrow.CompareWidth(c.wide) >= 0 || c.wide.CompareWidth(c.narrow) <= 0 || c.wide.CompareWidth(c.wide) != 0 {
			t.Errorf("%s: %v against %v", name, c.narrow, c.wide)
		}
	}
	if (L3{"0=1"}).CompareWidth(MB{"0=1"}) != 0 || ControlGroupsOf("BE").CompareWidth(ControlGroupsOf("/")) != 0 {
		t.Error("what cannot be compared must not be narrower")
	}
}

func TestControlGroupsAreKnobs(t *testing.T) {
	for text, k := range map[string]Knob{
		"resctrl:BE L3":             {ControlGroup: "BE", File: FileL3},
		"kubepods/burstable memory": {Cgroup: "kubepods/burstable", File: FileMemory},
		"/ cpu.weight":              {File: FileCPUWeight},
	} {
		if k.String() != text || KnobAt(k.Object(), k.File) != k {
			t.Errorf("%s: %v, %v", text, k, KnobAt(k.Object(), k.File))
		}
	}
	a, b := Knob{ControlGroup: "BE", File: FileL3}, Knob{Cgroup: "a", File: FileControlGroup}
	if a.Compare(b) >= 0 || b.Compare(a) <= 0 || a.Compare(Knob{ControlGroup: "LS", File: FileL3}) >= 0 || a.Compare(a) != 0 {
		t.Error("control groups come before cgroups, by name")
	}
}

func FuzzParseSchemata(f *testing.F) {
	for _, s := range []string{"0=7;1=7", "code 0=1 data 0=2", "/,BE", "0=100"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for _, file := range []File{FileL3, FileMB, FileControlGroup} {
			v, err := ParseValue(file, s)
			if err != nil {
				continue
			}
			if back, err := ParseValue(file, v.String()); err != nil || back != v {
				t.Fatalf("%s %q reads as %v, which reads as %v, %v", file, s, v, back, err)
			}
			v.CompareWidth(v)
			v.Round(Kernel{MB: Bandwidth{Step: 10, Most: 100}})
		}
	})
}
