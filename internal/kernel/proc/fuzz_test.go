package proc

import "testing"

func FuzzParseStat(f *testing.F) {
	f.Add("cpu  4720 0 2479 187963 549 0 97 19 0 0\ncpu0 1966 0 949 94950 23 0 19 5 0 0\nintr 1\nbtime 1700000000\n")
	f.Add("cpu 1 2 3 4 5 6 7 8\n")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := parseStat(text)
		if err == nil && (s.All.Busy() < 0 || s.All.Total() < s.All.Busy()) {
			t.Errorf("times overflow: %+v", s.All)
		}
	})
}

func FuzzParsePIDStat(f *testing.F) {
	f.Add(statLine("cat"))
	f.Add(statLine(") R ("))
	f.Add("1 ()")
	f.Add(")(")
	f.Add("0()\x00 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := parsePIDStat(text)
		if err == nil && (s.UserTime < 0 || s.StartTime < 0 || s.State == 0) {
			t.Errorf("impossible %+v", s)
		}
	})
}

func FuzzParseSchedStat(f *testing.F) {
	f.Add("391451 12000 7\n")
	f.Add("18446744073709551615 0 0")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := parseSchedStat(text)
		if err == nil && (s.Run < 0 || s.Delay < 0 || s.Slices < 0) {
			t.Errorf("negative: %+v", s)
		}
	})
}

func FuzzParseMemInfo(f *testing.F) {
	f.Add("MemTotal:       24684084 kB\nMemFree: 1 kB\nHugePages_Total: 0\n")
	f.Add("MemTotal: 9223372036854775807 kB\n")
	f.Fuzz(func(t *testing.T, text string) {
		m, err := parseMemInfo(text)
		if err == nil && (m.Total <= 0 || m.Free < 0) {
			t.Errorf("negative: %+v", m)
		}
	})
}

func FuzzParseVMStat(f *testing.F) {
	f.Add("nr_free_pages 6019166\npgmajfault 1374\n")
	f.Fuzz(func(t *testing.T, text string) { _, _ = parseVMStat(text) })
}

func FuzzParseCPUInfo(f *testing.F) {
	f.Add("processor\t: 0\nmodel name\t: Some CPU\nflags\t\t: fpu hypervisor\n\nprocessor\t: 1\n")
	f.Add("Features : fp asimd\n")
	f.Fuzz(func(t *testing.T, text string) { _, _ = parseCPUInfo(text) })
}

func FuzzParseCgroup(f *testing.F) {
	f.Add("3:cpu,cpuacct:/system.slice\n1:name=systemd:/a:b\n0::/\n")
	f.Fuzz(func(t *testing.T, text string) {
		entries, err := parseCgroup(text)
		for _, e := range entries {
			if err == nil && e.Path[0] != '/' {
				t.Errorf("path without slash: %+v", e)
			}
		}
	})
}
