package cgroup

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// divideBurst makes the files of a tree behave as those of Linux 5.14 to 6.9:
// a write of cpu.max divides cpu.max.burst by 1000.
func divideBurst(t *testing.T, tree *Tree) {
	t.Helper()
	tree.byController[cpu].wrote = func(dir, file string) {
		if file != "cpu.max" {
			return
		}
		path := filepath.Join(dir, "cpu.max.burst")
		text, err := readFile(path)
		if err != nil {
			t.Fatal(err)
		}
		burst, err := parseMicroseconds(text[:len(text)-1])
		if err == nil {
			err = os.WriteFile(path, []byte(microseconds(burst/1000)+"\n"), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestTheBurstSurvivesAWriteOfTheQuota changes a limit, and changes it back as
// a release does. Each value must be exact, also on kernels that divide the
// burst when the quota is written.
func TestTheBurstSurvivesAWriteOfTheQuota(t *testing.T) {
	const ms = time.Millisecond
	before := CPUMax{Quota: 150 * ms, Period: 100 * ms, Burst: 50 * ms} // as in groupV2
	for name, set := range map[string]CPUMax{
		"a larger quota":       {180 * ms, 100 * ms, 50 * ms},
		"a smaller quota":      {60 * ms, 100 * ms, 50 * ms},
		"another period":       {150 * ms, 50 * ms, 50 * ms},
		"no quota":             {NoQuota, 100 * ms, 50 * ms},
		"a larger burst, too":  {180 * ms, 100 * ms, 170 * ms},
		"a smaller burst, too": {40 * ms, 100 * ms, 30 * ms},
		"a larger burst alone": {150 * ms, 100 * ms, 90 * ms},
		"no burst":             {180 * ms, 100 * ms, 0},
	} {
		tree := fixture(t, groupV2)
		divideBurst(t, tree)
		for _, v := range []CPUMax{set, before} {
			if err := tree.WriteCPUMax("a", v); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if got, err := tree.ReadCPUMax("a"); err != nil || got != v {
				t.Errorf("%s: %+v, %v after a write of %+v", name, got, err, v)
			}
		}
	}
}
