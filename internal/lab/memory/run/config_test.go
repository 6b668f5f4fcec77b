package run

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"tenon.sh/tenon/internal/lab/harness"
	"tenon.sh/tenon/internal/lab/labtest"
	"tenon.sh/tenon/internal/lab/testbed"
	"tenon.sh/tenon/internal/model/unit"
)

func TestTheTwoWantMoreMemoryThanThereIs(t *testing.T) {
	for _, version := range []int{1, 2} {
		for _, set := range []unit.Bytes{minSet, 256 << 20, 10 << 30} {
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

func TestFaultsOfTheMemoryExperimentAreToldAtOnce(t *testing.T) {
	_, err := Config{Setting: testbed.Setting{Blocks: -1, StealPercent: -1}, Set: 1, Rate: -5, Duration: time.Millisecond}.orDefaults()
	for _, want := range []string{"--blocks -1", "--set 1:", "--rate -5", "--duration 1ms", "--max-steal -1"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v lacks %q", err, want)
		}
	}
	if c, err := (Config{}).orDefaults(); err != nil || c.Set != 256<<20 || c.Blocks != 12 {
		t.Errorf("%+v, %v", c, err)
	}
	if _, err := harness.ParseModes("default,tenon", Modes); err == nil || !strings.Contains(err.Error(), "tenond") {
		t.Errorf("an unknown mode: %v", err)
	}
}

func TestDefaultsSufficeForAVerdict(t *testing.T) {
	c, err := Config{}.orDefaults()
	if err != nil {
		t.Fatal(err)
	}
	labtest.Suffices(t, "memory", c.Blocks, time.Duration(c.Blocks*len(c.Modes))*(c.Duration+c.warmup()+4*time.Second))
}

func TestTenondUnderstandsWhatTheLabTellsIt(t *testing.T) {
	p := testbed.Pods{Root: "lab", Job: "hog", Tested: unit.CPUSetOf(0)}
	for version := 1; version <= 2; version++ {
		labtest.Understands(t, fmt.Sprint("cgroup v", version), (&environment{sizes: sizesOf(256<<20, version)}).tenondConfig(p))
	}
}
