package work

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestMeterInterpolates(t *testing.T) {
	at := time.Unix(100, 0)
	m := &Meter{}
	if err := m.Follow(strings.NewReader("100\n300\n400\n"), func() time.Time { at = at.Add(time.Second); return at }); err != nil {
		t.Fatal(err)
	}
	second := func(s float64) time.Time { return time.Unix(100, 0).Add(time.Duration(s * float64(time.Second))) }
	for _, c := range []struct{ from, to, want float64 }{{1, 3, 300}, {1.5, 2, 100}, {2.5, 9, 50}, {0, 0.5, 0}, {9, 10, 0}} {
		if got := m.GrowthBetween(second(c.from), second(c.to)); math.Abs(got-c.want) >= 1e-9 {
			t.Errorf("from %v to %v s: %v, want %v", c.from, c.to, got, c.want)
		}
	}
	if m.Last() != 400 {
		t.Errorf("last %v", m.Last())
	}
	if err := m.Follow(strings.NewReader("many\n"), time.Now); err == nil {
		t.Error("a line that is not a number is accepted")
	}
}

func TestEvictedFilesLeaveMemory(t *testing.T) {
	dir, err := os.MkdirTemp("/var/tmp", "tenon-test-")
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "file")
	if err := WriteFile(path, 3<<20+1, 1); err != nil {
		t.Fatal(err)
	}
	if held, all, err := CachedPages(path); err != nil || held != all || all != (3<<20)/os.Getpagesize()+1 {
		t.Fatalf("%d of %d pages in memory after they were written, %v", held, all, err)
	}
	if err := Evict(dir); err != nil {
		t.Fatal(err)
	}
	held, all, err := CachedPages(path)
	if err != nil {
		t.Fatal(err)
	}
	if held == all {
		t.Skipf("the file system of /var/tmp keeps files in memory: all of %d pages", all)
	}
	if held > all/2 {
		t.Errorf("%d of %d pages are still in memory", held, all)
	}
	if err := RoomFor(dir, 1<<60); err == nil || !strings.Contains(err.Error(), "--data") {
		t.Errorf("room for an exbibyte: %v", err)
	}
}
