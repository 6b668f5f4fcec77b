package node

import (
	"encoding/json"
	"testing"
	"time"

	"tenon.sh/tenon/internal/model/unit"
)

func TestValuesPrintWhatTheyParse(t *testing.T) {
	for name, c := range map[string]struct {
		file File
		text string
	}{
		"weight":           {FileCPUWeight, "100"},
		"odd v1 shares":    {FileCPUWeight, "32.51953125"}, // 333
		"idle":             {FileCPUWeight, "idle"},
		"no quota":         {FileCPUMax, "max 100000"},
		"quota and burst":  {FileCPUMax, "50000 100000 burst 20000"},
		"cpus":             {FileCPUs, "0-3,8"},
		"no cpus":          {FileCPUs, ""},
		"memory":           {FileMemory, "min 0 low 4096 high max max 1073741824"},
		"no limit on pids": {FilePIDs, "max"},
		"pids":             {FilePIDs, "100"},
	} {
		v, err := ParseValue(c.file, c.text)
		if err != nil || v.String() != c.text {
			t.Errorf("%s: %q reads as %v, %v", name, c.text, v, err)
		}
	}
	if _, err := ParseValue("cpu.color", "red"); err == nil {
		t.Error("an unknown knob was accepted")
	}
}

func TestValuesRoundAsTheKernelDoes(t *testing.T) {
	v1, v2 := Kernel{CgroupVersion: 1, PageSize: 4096}, Kernel{CgroupVersion: 2, PageSize: 4096}
	for name, c := range map[string]struct {
		in     Value
		kernel Kernel
		want   string
	}{
		"shares 2 exist on v1":           {CPUWeight{Weight: unit.WeightOfShares(2)}, v1, "0.1953125"},
		"shares 2 are weight 1 on v2":    {CPUWeight{Weight: unit.WeightOfShares(2)}, v2, "1"},
		"idle has no weight":             {CPUWeight{Idle: true, Weight: 7}, v2, "idle"},
		"memory is whole pages":          {Memory{High: unit.MaxBytes, Max: 1000001}, v2, "min 0 low 0 high max max 999424"},
		"no limit stays no limit":        {NoMemoryLimit, v1, "min 0 low 0 high max max max"},
		"quota is whole microseconds":    {CPUMax{Quota: 1500500, Period: DefaultPeriod}, v1, "1500 100000"},
		"a tiny limit is the least":      {Limit(1), v1, "1000 100000"},
		"a limit uses the usual period":  {Limit(2500), v2, "250000 100000"},
		"an unlimited quota is the word": {CPUMax{Quota: NoQuota, Period: time.Second}, v2, "max 1000000"},
	} {
		if got := c.in.Round(c.kernel).String(); got != c.want {
			t.Errorf("%s: %v rounds to %q, want %q", name, c.in, got, c.want)
		}
	}
}

func TestNarrowerOrdersValues(t *testing.T) {
	set := func(s string) Value {
		c, err := unit.ParseCPUSet(s)
		if err != nil {
			t.Fatal(err)
		}
		return CPUs{c}
	}
	for name, c := range map[string]struct{ narrow, wide Value }{
		"idle below any weight":     {CPUWeight{Idle: true}, CPUWeight{Weight: unit.WeightOf(1)}},
		"quota below no quota":      {Limit(1000), CPUMax{Quota: NoQuota, Period: DefaultPeriod}},
		"subset":                    {set("0-1"), set("0-3")},
		"any set below the empty":   {set("0"), set("")},
		"memory limit below none":   {Memory{High: unit.MaxBytes, Max: 1}, NoMemoryLimit},
		"memory.high counts second": {Memory{High: 1, Max: 2}, Memory{High: 2, Max: 2}},
		"pids":                      {Maximum{Max: 1}, Maximum{Max: NoMaximum}},
	} {
		if c.narrow.CompareWidth(c.wide) >= 0 || c.wide.CompareWidth(c.narrow) <= 0 || c.wide.CompareWidth(c.wide) != 0 {
			t.Errorf("%s: %v against %v", name, c.narrow, c.wide)
		}
	}
	if set("0").CompareWidth(set("1")) != 0 || set("0").CompareWidth(Maximum{Max: 1}) != 0 {
		t.Error("what cannot be compared must not be narrower")
	}
}

func TestMissingIsVisibleInJSON(t *testing.T) {
	b, err := json.Marshal(Usage{CPU: Some(time.Second)})
	if err != nil || string(b) != `{"cpu":1000000000}` {
		t.Fatalf("%s, %v", b, err)
	}
	var u Usage
	if err := json.Unmarshal([]byte(`{"cpu":5,"memory":null}`), &u); err != nil {
		t.Fatal(err)
	}
	if v, known := u.CPU.Value(); !known || v != 5 || u.Memory.Known() || u.Throttled.Known() {
		t.Errorf("%+v", u)
	}
}

func TestPaths(t *testing.T) {
	p := CgroupPath("").Join("kubepods").Join("besteffort")
	if p != "kubepods/besteffort" || p.Depth() != 2 || p.Parent() != "kubepods" || p.Parent().Parent() != "" {
		t.Errorf("%q", p)
	}
	if !CgroupPath("a").Contains("a/b") || CgroupPath("a").Contains("ab") || !CgroupPath("").Contains("a") {
		t.Error("Contains")
	}
}

func FuzzParseValue(f *testing.F) {
	for _, s := range []string{"idle", "100", "max 100000", "50000 100000 burst 1", "0-3", "min 0 low 0 high max max 5", "max"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for _, file := range Files {
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
