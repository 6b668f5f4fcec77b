package cgroup

import "testing"

func FuzzParseCPUMax(f *testing.F) {
	f.Add("max 100000")
	f.Add("50000 100000")
	f.Add("-1 18446744073709551615")
	f.Fuzz(func(t *testing.T, text string) {
		if v, err := parseCPUMax(text); err == nil && (v.Quota < 0 || v.Period < 0) {
			t.Errorf("negative: %+v", v)
		}
		if q, err := v1ParseQuota(text); err == nil && q < 0 {
			t.Errorf("negative quota %v", q)
		}
	})
}

func FuzzParseCPUStat(f *testing.F) {
	f.Add("usage_usec 3000\nuser_usec 2000\nsystem_usec 1000\nnr_periods 7\nthrottled_usec 9223372036854775807\n")
	f.Add("nr_periods 7\nnr_throttled 5\nthrottled_time 400000\n")
	f.Fuzz(func(t *testing.T, text string) {
		v2, err2 := parseCPUStat(text)
		v1, err1 := v1ParseCPUStat(text)
		if (err2 == nil && (v2.Usage < 0 || v2.Throttled < 0)) || (err1 == nil && v1.Throttled < 0) {
			t.Errorf("negative: %+v %+v", v2, v1)
		}
	})
}

func FuzzParseMemoryStat(f *testing.F) {
	f.Add("anon 100\nfile 200\npgfault 6\ninactive_file 120\n")
	f.Add("total_cache 200\ntotal_rss 100\nhierarchical_memory_limit 9223372036854771712\n")
	f.Fuzz(func(t *testing.T, text string) {
		v2, err2 := parseMemoryStat(text)
		v1, err1 := v1ParseMemoryStat(text)
		if (err2 == nil && v2.Anon < 0) || (err1 == nil && v1.Anon < 0) {
			t.Errorf("negative: %+v %+v", v2, v1)
		}
	})
}

func FuzzParseCount(f *testing.F) {
	f.Add("max")
	f.Add("4194304")
	f.Add("18446744073709551615")
	f.Fuzz(func(t *testing.T, text string) {
		n, err := parseCount(text)
		if err != nil {
			return
		}
		if again, err := parseCount(count(n)); n < 0 || err != nil || again != n {
			t.Errorf("%q reads as %d, which reads as %d, %v", text, n, again, err)
		}
	})
}

func FuzzParseProcs(f *testing.F) {
	f.Add("1\n30\n4\n0\n30\n")
	f.Fuzz(func(t *testing.T, text string) {
		ids, err := parseProcs(text)
		for i, id := range ids {
			if err != nil || id <= 0 || (i > 0 && ids[i-1] >= id) {
				t.Errorf("ids %v, %v", ids, err)
			}
		}
	})
}

func FuzzParseMemoryUse(f *testing.F) {
	f.Add("anon 100\ninactive_file 120\nworkingset_refault_file 9223372036854775807\nworkingset_refault_anon 9223372036854775807\n")
	f.Add("total_inactive_file 200\ntotal_workingset_refault 100")
	f.Fuzz(func(t *testing.T, text string) {
		for _, version := range []int{1, 2} {
			if u, _, _ := parseMemoryUse(text, version); u.InactiveFile < 0 || u.Refaults < 0 {
				t.Errorf("negative: %+v", u)
			}
		}
	})
}

func FuzzParseIOUse(f *testing.F) {
	f.Add("8:16 rbytes=1459200 wbytes=314773504 rios=192 wios=353 dbytes=0 dios=0\n8:0\n")
	f.Add("8:16 Read 9223372036854775807\n8:0 Read 1\nTotal 1\n")
	f.Fuzz(func(t *testing.T, text string) {
		for _, parse := range []func(string) (IOUse, error){parseIOUse, v1ParseIOUse} {
			if u, err := parse(text); err == nil && (u.Read < 0 || u.Written < 0) {
				t.Errorf("negative: %+v", u)
			}
		}
	})
}
