package cgroup

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestUsagePerCPUIsNanosecondsInOrder(t *testing.T) {
	got, err := parseUsagePerCPU("1000000000 2500000000 \n")
	if err != nil || len(got) != 2 || got[0] != time.Second || got[1] != 2500*time.Millisecond {
		t.Errorf("got %v, %v", got, err)
	}
	for _, bad := range []string{"", "-1", "x 1"} {
		if got, err := parseUsagePerCPU(bad); err == nil {
			t.Errorf("%q gives %v", bad, got)
		}
	}
}

func TestCPUUseIsThatOfCPUStat(t *testing.T) {
	v2 := fixture(t, onlyV2+`
-- v2/web/cpu.stat --
usage_usec 2500000
user_usec 2000000
system_usec 500000
nr_periods 10
nr_throttled 4
throttled_usec 1500
`)
	want := CPUUse{Usage: 2500 * time.Millisecond, Throttled: 1500 * time.Microsecond, Periods: 10, ThrottledPeriods: 4}
	if got, err := v2.CPUUse("web"); err != nil || got != want {
		t.Errorf("v2: %+v, %v, want %+v", got, err, want)
	}
	v1 := fixture(t, onlyV1+`-- cpu/web/cpu.stat --
nr_periods 10
nr_throttled 4
throttled_time 1500000
-- cpuacct/web/cpuacct.usage --
2500000000
`)
	if got, err := v1.CPUUse("web"); err != nil || got != want {
		t.Errorf("v1: %+v, %v, want %+v", got, err, want)
	}
	if _, err := v2.UsagePerCPU("web"); !errors.Is(err, ErrUnsupported) {
		t.Errorf("UsagePerCPU on v2: %v", err)
	}
	if _, err := v2.CPUUse("gone"); !errors.Is(err, ErrGone) {
		t.Errorf("a missing group: %v", err)
	}
}

func TestKeptFilesShowTheNewGroupOfTheSameName(t *testing.T) {
	tree := fixture(t, onlyV2+`
-- v2/web/cpu.stat --
usage_usec 1000000
`)
	kept := tree.KeepOpen(512)
	dir, err := kept.Dir("cpu", "web")
	if err != nil {
		t.Fatal(err)
	}
	read := func() time.Duration {
		t.Helper()
		u, err := kept.CPUUse("web")
		if err != nil {
			t.Fatal(err)
		}
		return u.Usage
	}
	if got := read(); got != time.Second {
		t.Fatalf("usage %v, want 1s", got)
	}
	if err := os.WriteFile(filepath.Join(dir, "cpu.stat"), []byte("usage_usec 2000000\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if got := read(); got != 2*time.Second {
		t.Errorf("usage %v after the counter moved, want 2s", got)
	}
	kept.Close("web")
	if n := kept.hierarchies[0].open.Len(); n != 0 {
		t.Errorf("%d files are open after Close", n)
	}
	if len(tree.hierarchies) != len(kept.hierarchies) || tree.hierarchies[0].open != nil {
		t.Error("KeepOpen changed the tree that it was made from")
	}
}

// TestAWholeFileIsRead reads texts of several lengths. A text without a final
// newline, or one that fills the buffer, may be incomplete.
func TestAWholeFileIsRead(t *testing.T) {
	file := filepath.Join(t.TempDir(), "counter")
	for text, want := range map[string]error{
		"": nil, "1": nil, "1\n": nil, "usage_usec 7": nil, "\n\n1\n": nil,
		strings.Repeat("x", 14) + "\n": nil, strings.Repeat("x", 16): io.ErrShortBuffer,
		strings.Repeat("x", 15) + "\n": io.ErrShortBuffer, strings.Repeat("x\n", 40): io.ErrShortBuffer,
	} {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		fd, err := openPath(file)
		if err != nil {
			t.Fatal(err)
		}
		var buf [16]byte
		n, err := readWhole(fd, buf[:])
		if !errors.Is(err, want) || (want == nil && string(buf[:n]) != text) {
			t.Errorf("the file %q was read as %q, %v", text, buf[:n], err)
		}
		_ = syscall.Close(fd)
	}
	if _, err := openPath(file + "-gone"); !errors.Is(err, syscall.ENOENT) {
		t.Errorf("a missing file: %v", err)
	}
}

func TestMemoryUseIsTheColdCacheAndWhatCameBack(t *testing.T) {
	v2 := fixture(t, onlyV2+`
-- v2/web/memory.stat --
anon 100
inactive_file 4096
workingset_refault_anon 3
workingset_refault_file 4
-- v2/old/memory.stat --
inactive_file 4096
workingset_refault 7
-- v2/bad/memory.stat --
anon 100
`)
	v1 := fixture(t, onlyV1+`-- memory/web/memory.stat --
inactive_file 1
workingset_refault_file 1
total_inactive_file 4096
total_workingset_refault_anon 3
total_workingset_refault_file 4
`)
	want := MemoryUse{InactiveFile: 4096, Refaults: 7}
	for name, got := range map[string]func() (MemoryUse, error){
		"v2":                  func() (MemoryUse, error) { return v2.MemoryUse("web") },
		"before Linux 5.9":    func() (MemoryUse, error) { return v2.MemoryUse("old") },
		"v1 with those below": func() (MemoryUse, error) { return v1.MemoryUse("web") },
	} {
		if u, err := got(); err != nil || u != want {
			t.Errorf("%s: %+v, %v, want %+v", name, u, err, want)
		}
	}
	if u, err := v2.MemoryUse("bad"); err == nil {
		t.Errorf("without inactive_file: %+v", u)
	}
	if _, err := v2.MemoryUse("gone"); !errors.Is(err, ErrGone) {
		t.Errorf("a missing group: %v", err)
	}
}

func TestIOUseIsTheSumOverDevices(t *testing.T) {
	v2 := fixture(t, onlyV2+`
-- v2/web/io.stat --
8:16 rbytes=1000 wbytes=20 rios=1 wios=1 dbytes=0 dios=0
8:0
253:0 rbytes=500 wbytes=0 rios=1 wios=0 dbytes=0 dios=0
-- v2/idle/io.stat --
-- v2/bad/io.stat --
8:16 rbytes=x
`)
	v1 := fixture(t, onlyV1+`-- blkio/web/blkio.throttle.io_service_bytes_recursive --
8:16 Read 1000
8:16 Write 20
8:16 Sync 1020
8:16 Total 1020
253:0 Read 500
253:0 Write 0
Total 1520
`)
	want := IOUse{Read: 1500, Written: 20}
	for name, tree := range map[string]*Tree{"v2": v2, "v1": v1} {
		if u, err := tree.IOUse("web"); err != nil || u != want {
			t.Errorf("%s: %+v, %v, want %+v", name, u, err, want)
		}
	}
	if u, err := v2.IOUse("idle"); err != nil || u != (IOUse{}) {
		t.Errorf("a group that did no I/O: %+v, %v", u, err)
	}
	if u, err := v2.IOUse("bad"); err == nil {
		t.Errorf("a malformed line: %+v", u)
	}
}

func TestDamagedQuotaCountersAreNotKnown(t *testing.T) {
	for name, lines := range map[string]string{
		"negative":        "nr_periods -3\nnr_throttled -2\nthrottled_usec -7\n",
		"wrapped":         "nr_periods 18446744073709551615\nnr_throttled 18446744073709551615\nthrottled_usec 18446744073709551615\n",
		"with tabs":       "nr_periods\t-3\nnr_throttled\t-2\nthrottled_usec\t-7\n",
		"a doubled line":  "nr_periods 3\nnr_periods 3\nnr_throttled 2\n",
		"doubled and all": "nr_periods 3\nnr_throttled 2\nthrottled_usec 7\nthrottled_usec 8\n",
		"one damaged":     "nr_periods x\nnr_throttled 2\nthrottled_usec 7\n",
		"only one":        "throttled_usec 7\n",
		"no number":       "nr_periods\nnr_throttled\nthrottled_usec\n",
	} {
		u, err := fixture(t, onlyV2+"-- v2/a/cpu.stat --\nusage_usec 9\n"+lines).CPUUse("a")
		if err != nil || u.Usage != 9*time.Microsecond || u.QuotaErr == nil || u.Periods != 0 || u.Throttled != 0 {
			t.Errorf("%s: %+v, %v", name, u, err)
		}
	}
	if u, err := fixture(t, onlyV2+"-- v2/a/cpu.stat --\nusage_usec 9\n").CPUUse("a"); err != nil || u.QuotaErr != nil {
		t.Errorf("a kernel without quotas: %+v, %v", u, err)
	}
	if u, err := fixture(t, onlyV2+"-- v2/a/cpu.stat --\nusage_usec 9\nusage_usec 10\n").CPUUse("a"); err == nil {
		t.Errorf("two lines of usage: %+v", u)
	}
}

func TestACounterIsNeverMax(t *testing.T) {
	for _, bad := range []string{"18446744073709551615", "9223372036854775808", "max", "-1", "+1", ""} {
		v2 := fixture(t, onlyV2+"-- v2/a/memory.current --\n"+bad+"\n-- v2/a/memory.peak --\n"+bad+"\n-- v2/a/pids.current --\n"+bad+"\n")
		if n, err := v2.MemoryCurrent("a"); err == nil {
			t.Errorf("memory.current %q gives %d", bad, n)
		}
		if n, err := MemoryPeak(v2, "a"); err == nil {
			t.Errorf("memory.peak %q gives %d", bad, n)
		}
		if n, err := v2.PIDsCurrent("a"); err == nil {
			t.Errorf("pids.current %q gives %d", bad, n)
		}
		if n, err := fixture(t, onlyV1+"-- cpuacct/a/cpuacct.usage --\n"+bad+"\n").CPUUsage("a"); err == nil {
			t.Errorf("cpuacct.usage %q gives %d", bad, n)
		}
	}
}

func TestRefaultsNeedBothCountersOnce(t *testing.T) {
	for _, lines := range []string{
		"workingset_refault_anon 3\n", "workingset_refault_file 4\n", "workingset_refault 3\nworkingset_refault_file 4\n",
		"workingset_refault_anon 3\nworkingset_refault_anon 3\nworkingset_refault_file 4\n", "workingset_refault 3\nworkingset_refault 3\n",
		"workingset_refault_anon 9223372036854775807\nworkingset_refault_file 9223372036854775807\n",
		"workingset_refault_anon -5\nworkingset_refault_file 4\n",
	} {
		tree := fixture(t, onlyV2+"-- v2/a/memory.stat --\nanon 1\ninactive_file 5\n"+lines)
		if u, err := tree.MemoryUse("a"); err != nil || u.InactiveFile != 5 || u.RefaultsErr == nil || u.Refaults != 0 {
			t.Errorf("%q: %+v, %v", lines, u, err)
		}
		if s, err := tree.MemoryStat("a"); err == nil {
			t.Errorf("%q: %+v", lines, s)
		}
	}
	if u, err := fixture(t, onlyV2+"-- v2/a/memory.stat --\ninactive_file 5\ninactive_file 6\n").MemoryUse("a"); err == nil {
		t.Errorf("two lines of inactive_file: %+v", u)
	}
}
