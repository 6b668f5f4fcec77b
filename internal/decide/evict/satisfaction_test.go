package evict

import (
	"testing"

	"tenon.sh/tenon/internal/model/unit"
)

func TestBEIsStarvedOnlyNearASmallBound(t *testing.T) {
	c := CPUConfig{UsageThreshold: 90, SatisfactionLower: 60}
	for name, b := range map[string]struct {
		balance
		starved bool
	}{
		"uses its bound":                    {balance{Bound: 2000, Used: 1800, Request: 4000}, true},
		"leaves more than a tenth":          {balance{Bound: 2000, Used: 1799, Request: 4000}, false},
		"below a CPU, the use says nothing": {balance{Bound: 999, Used: 0, Request: 4000}, true},
		"a whole CPU is not that little":    {balance{Bound: unit.CPUs(1), Used: 0, Request: 4000}, false},
		"satisfied to 60 %":                 {balance{Bound: 2400, Used: 2400, Request: 4000}, true},
		"satisfied to more":                 {balance{Bound: 2401, Used: 2401, Request: 4000}, false},
		"requests nothing":                  {balance{Bound: 500, Used: 500}, false},
	} {
		if got := b.isStarved(c); got != b.starved {
			t.Errorf("%s: starved %v, want %v", name, got, b.starved)
		}
	}
}
