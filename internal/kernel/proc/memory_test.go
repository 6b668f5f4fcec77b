package proc

import (
	"testing"

	"tenon.sh/tenon/internal/model/unit"
)

func TestRefaultsAreThoseOfAllKinds(t *testing.T) {
	for text, want := range map[string]int64{
		"pgfault 9\nworkingset_refault_anon 3\nworkingset_refault_file 4\n": 7,
		"workingset_refault 5\n": 5, // the name before Linux 5.9
	} {
		v, err := parseVMStat(text)
		if n, unknown := v.Refaults(); err != nil || unknown != nil || n != want {
			t.Errorf("%q gives %d, %v, %v, want %d", text, n, err, unknown, want)
		}
	}
	for _, text := range []string{"pgfault 9\n", "workingset_refault_anon 3\n", "workingset_refault_anon 3\nworkingset_refault_file x\n",
		"pgfault 9\nworkingset_refault -5\n", "pgfault 9\nworkingset_refault_anon -5\nworkingset_refault_file 4\n",
		"workingset_refault_anon 9223372036854775807\nworkingset_refault_file 9223372036854775807\n",
		"workingset_refault_anon 3\nworkingset_refault_file 4\nworkingset_refault_file 4\n",
	} {
		v, err := parseVMStat(text)
		if n, unknown := v.Refaults(); err != nil || unknown == nil {
			t.Errorf("%q gives %d, %v", text, n, err)
		}
	}
}

// TestHugePagesOfAllSizesCount reads the memory in huge pages. A damaged line
// loses only what it says.
func TestHugePagesOfAllSizesCount(t *testing.T) {
	const gib = 1 << 30
	for name, c := range map[string]struct {
		text string
		want unit.Bytes
	}{
		"all sizes":             {"HugePages_Total: 512\nHugepagesize: 2048 kB\nHugetlb: 3145728 kB\n", 3 * gib},
		"an older kernel":       {"HugePages_Total: 512\nHugepagesize: 2048 kB\n", gib},
		"none":                  {"HugePages_Total: 0\nHugepagesize: 2048 kB\nHugetlb: 0 kB\n", 0},
		"not in this kernel":    {"", 0},
		"a damaged line":        {"HugePages_Total: 512\nHugepagesize: 2048 kB\nHugetlb: \x00 kB\n", gib},
		"a negative line":       {"Hugetlb: -5 kB\n", 0},
		"more than an int64":    {"HugePages_Total: 9223372036854775807\nHugepagesize: 2048 kB\n", 0},
		"transparent ones":      {"AnonHugePages: 2097152 kB\nFileHugePages: 0 kB\n", 0},
		"a kernel with s390x's": {"HugePages_Total: 3\nHugepagesize: 1024 kB\n", 3 << 20},
	} {
		m, err := parseMemInfo("MemTotal: 67108864 kB\n" + c.text)
		if err != nil || m.HugePages != c.want || m.Total != 64*gib {
			t.Errorf("%s: %d of %d, %v, want %d", name, m.HugePages, m.Total, err, c.want)
		}
	}
}

func TestInactivePageCacheIsPartOfMemInfo(t *testing.T) {
	m, err := parseMemInfo("MemTotal: 100 kB\nInactive: 50 kB\nInactive(anon): 20 kB\nInactive(file): 30 kB\n")
	if err != nil || m.InactiveFile != 30<<10 {
		t.Errorf("%+v, %v", m, err)
	}
}
