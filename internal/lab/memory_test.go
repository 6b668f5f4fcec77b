package lab

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tenon.sh/tenon/internal/lab/frame"
	"tenon.sh/tenon/internal/model/unit"
)

func TestTheTwoWantMoreMemoryThanThereIs(t *testing.T) {
	for _, version := range []int{1, 2} {
		for _, set := range []unit.Bytes{leastSet, 256 << 20, 10 << 30} {
			s := sizesOf(set, version)
			left := s.Parent - s.Request
			switch {
			case s.Request <= s.Set:
				t.Errorf("v%d: the service requests %v of memory for %v of pages", version, s.Request, s.Set)
			case s.HogHeld >= left:
				t.Errorf("v%d: the batch work holds %v that cannot be reclaimed, but only %v are left for it", version, s.HogHeld, left)
			case s.HogFile+s.HogHeld+s.Set < 2*s.Parent:
				t.Errorf("v%d: %v and %v fit into %v, want memory to be short", version, s.HogFile, s.Set, s.Parent)
			}
			high := s.HogLimit * unit.Bytes(s.ThrottlingPercent) / 100
			if version == 1 && (s.HogLimit != left || s.ThrottlingPercent != 0) {
				t.Errorf("v1: limit %v, throttled from %d %%: want the limit %v and no throttling", s.HogLimit, s.ThrottlingPercent, left)
			}
			if version == 2 && (high > left || high < left*9/10) {
				t.Errorf("v2: throttled from %v on, want a little less than %v", high, left)
			}
		}
	}
}

func TestMeterInterpolates(t *testing.T) {
	at := time.Unix(100, 0)
	m := &meter{}
	if err := m.follow(strings.NewReader("100\n300\n400\n"), func() time.Time { at = at.Add(time.Second); return at }); err != nil {
		t.Fatal(err)
	}
	second := func(s float64) time.Time { return time.Unix(100, 0).Add(time.Duration(s * float64(time.Second))) }
	for _, c := range []struct{ from, to, want float64 }{{1, 3, 300}, {1.5, 2, 100}, {2.5, 9, 50}, {0, 0.5, 0}, {9, 10, 0}} {
		if got := m.between(second(c.from), second(c.to)); math.Abs(got-c.want) >= 1e-9 {
			t.Errorf("from %v to %v s: %v, want %v", c.from, c.to, got, c.want)
		}
	}
	if m.last() != 400 {
		t.Errorf("last %v", m.last())
	}
	if err := m.follow(strings.NewReader("many\n"), time.Now); err == nil {
		t.Error("a line that is not a number is accepted")
	}
}

func TestFaultsOfTheMemoryExperimentAreToldAtOnce(t *testing.T) {
	_, err := MemoryConfig{Blocks: -1, Set: 1, Rate: -5, Duration: time.Millisecond}.orDefaults()
	for _, want := range []string{"--blocks -1", "--set 1:", "--rate -5", "--duration 1ms"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v lacks %q", err, want)
		}
	}
	if c, err := (MemoryConfig{}).orDefaults(); err != nil || c.Set != 256<<20 || c.Blocks != 6 {
		t.Errorf("%+v, %v", c, err)
	}
	if _, err := frame.ParseModes("default,tenon", MemoryModes); err == nil || !strings.Contains(err.Error(), "tenond") {
		t.Errorf("an unknown mode: %v", err)
	}
}

func TestEvictedFilesLeaveMemory(t *testing.T) {
	dir, err := os.MkdirTemp("/var/tmp", "tenon-test-")
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "file")
	if err := writeFile(path, 3<<20+1, 1); err != nil {
		t.Fatal(err)
	}
	if held, all, err := cachedPages(path); err != nil || held != all || all != (3<<20)/os.Getpagesize()+1 {
		t.Fatalf("%d of %d pages in memory after they were written, %v", held, all, err)
	}
	if err := evict(dir); err != nil {
		t.Fatal(err)
	}
	held, all, err := cachedPages(path)
	if err != nil {
		t.Fatal(err)
	}
	if held == all {
		t.Skipf("the file system of /var/tmp keeps files in memory: all of %d pages", all)
	}
	if held > all/2 {
		t.Errorf("%d of %d pages are still in memory", held, all)
	}
	if err := roomFor(dir, 1<<60); err == nil || !strings.Contains(err.Error(), "--data") {
		t.Errorf("room for an exbibyte: %v", err)
	}
}
