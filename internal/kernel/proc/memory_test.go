package proc

import "testing"

func TestRefaultsAreThoseOfAllKinds(t *testing.T) {
	for text, want := range map[string]int64{
		"pgfault 9\nworkingset_refault_anon 3\nworkingset_refault_file 4\n": 7,
		"workingset_refault 5\n": 5, // the name before Linux 5.9
		"pgfault 9\n":            0,
	} {
		if v, err := parseVMStat(text); err != nil || v.Refaults() != want {
			t.Errorf("%q gives %d, %v, want %d", text, v.Refaults(), err, want)
		}
	}
}

func TestInactivePageCacheIsPartOfMemInfo(t *testing.T) {
	m, err := parseMemInfo("MemTotal: 100 kB\nInactive: 50 kB\nInactive(anon): 20 kB\nInactive(file): 30 kB\n")
	if err != nil || m.InactiveFile != 30<<10 {
		t.Errorf("%+v, %v", m, err)
	}
}
