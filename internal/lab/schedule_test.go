package lab

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tenon.sh/tenon/internal/lab/report"
)

func TestBlockRunsEveryModeOnce(t *testing.T) {
	for block := range 50 {
		got := slices.Sorted(slices.Values(Block(AllModes, 7, block)))
		want := slices.Sorted(slices.Values(AllModes))
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("block %d (-want +got):\n%s", block, diff)
		}
	}
}

func TestOrderDependsOnSeedAndBlockAlone(t *testing.T) {
	distinct := map[string]bool{}
	for block := range 20 {
		order := Block(AllModes, 7, block)
		if diff := cmp.Diff(order, Block(AllModes, 7, block)); diff != "" {
			t.Errorf("block %d differs the second time:\n%s", block, diff)
		}
		distinct[joinModes(order)] = true
	}
	if len(distinct) < 15 {
		t.Errorf("20 blocks have only %d orders", len(distinct))
	}
	if joinModes(Block(AllModes, 7, 1)) == joinModes(Block(AllModes, 8, 1)) {
		t.Error("another seed gives the same order")
	}
}

func TestBlockLeavesItsArgumentAlone(t *testing.T) {
	modes := slices.Clone(AllModes)
	Block(modes, 1, 1)
	if diff := cmp.Diff(AllModes, modes); diff != "" {
		t.Error(diff)
	}
}

func TestParseModes(t *testing.T) {
	tests := map[string]struct {
		list string
		want []report.Mode
		bad  bool
	}{
		"all":     {"all", AllModes, false},
		"seed":    {"seed", []report.Mode{report.Exclusive, report.Default, report.Tenon}, false},
		"spaces":  {"exclusive, tenon-65", []report.Mode{report.Exclusive, report.Tenon65}, false},
		"unknown": {"exclusive,fast", nil, true},
		"twice":   {"tenon,tenon", nil, true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := ParseModes(tt.list)
			if (err != nil) != tt.bad {
				t.Fatalf("error %v", err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}
