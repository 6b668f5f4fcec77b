package run

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tenon.sh/tenon/internal/lab/harness"
	"tenon.sh/tenon/internal/lab/report"
)

func TestBlockRunsEveryModeOnce(t *testing.T) {
	for block := range 50 {
		got := slices.Sorted(slices.Values(harness.Block(AllModes, 7, block)))
		want := slices.Sorted(slices.Values(AllModes))
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("block %d (-want +got):\n%s", block, diff)
		}
	}
}

func TestOrderDependsOnSeedAndBlockAlone(t *testing.T) {
	distinct := map[string]bool{}
	for block := range 20 {
		order := harness.Block(AllModes, 7, block)
		if diff := cmp.Diff(order, harness.Block(AllModes, 7, block)); diff != "" {
			t.Errorf("block %d differs the second time:\n%s", block, diff)
		}
		distinct[harness.JoinModes(order)] = true
	}
	if len(distinct) < 15 {
		t.Errorf("20 blocks have only %d orders", len(distinct))
	}
	if harness.JoinModes(harness.Block(AllModes, 7, 1)) == harness.JoinModes(harness.Block(AllModes, 8, 1)) {
		t.Error("another seed gives the same order")
	}
}

func TestBlockLeavesItsArgumentAlone(t *testing.T) {
	modes := slices.Clone(AllModes)
	harness.Block(modes, 1, 1)
	if diff := cmp.Diff(AllModes, modes); diff != "" {
		t.Error(diff)
	}
}

func TestParseModes(t *testing.T) {
	tests := map[string]struct {
		list  string
		known []report.Mode
		want  []report.Mode
		bad   bool
	}{
		"all":               {"all", Modes, nil, false},
		"published":         {"published", Modes, PublishedModes, false},
		"spaces":            {"exclusive, tenon-65", Modes, []report.Mode{report.Exclusive, report.Tenon65}, false},
		"a rung":            {"tenon-scx", Modes, []report.Mode{report.TenonSCX}, false},
		"a mode of another": {"tenon-65", KernelQOSModes, nil, true},
		"unknown":           {"exclusive,fast", Modes, nil, true},
		"twice":             {"tenon,tenon", Modes, nil, true},
		"memory's":          {"tenond", []report.Mode{report.Default, report.Tenond}, []report.Mode{report.Tenond}, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := harness.ParseModes(tt.list, tt.known, PublishedModes...)
			if (err != nil) != tt.bad {
				t.Fatalf("error %v", err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}
