package node

import (
	"testing"

	"tenon.sh/tenon/internal/model/unit"
)

// TestOrdersReadBack checks that the text of each order parses to the same
// order.
func TestOrdersReadBack(t *testing.T) {
	for file, values := range map[File][]Value{
		FileSchedulerGroup: {
			SchedulerGroup{}, SchedulerGroup{Class: SchedulerLSX}, SchedulerGroup{Class: SchedulerNormal}, SchedulerGroup{Class: SchedulerBE},
			SchedulerGroup{Class: SchedulerBE, Slot: 255, Weight: 10000}, SchedulerGroup{Class: SchedulerBE, Slot: 1, Weight: 1, Quota: 1500},
		},
		FileSchedulerCap: {SchedulerCap{}, SchedulerCap{Most: 1}, SchedulerCap{Most: 64000}},
	} {
		if !file.OrdersScheduler() {
			t.Errorf("%s is no order to the scheduler", file)
		}
		for _, v := range values {
			if back, err := ParseValue(file, v.String()); err != nil || back != v {
				t.Errorf("%s %q reads as %v, %v", file, v, back, err)
			}
		}
	}
}

func TestWhatIsNoOrderIsRefused(t *testing.T) {
	for file, texts := range map[File][]string{
		FileSchedulerGroup: {
			"", "LS-", "LS slot 1 weight 100", "BE slot 256 weight 100", "BE slot -1 weight 100", "BE slot 0 weight 0", "BE slot 1", "BE slot 1 weight 0",
			"BE slot 1 weight 10001", "BE slot 1 weight 100 quota", "BE slot 1 weight 100 quota 0", "BE slot 1 weight 100 limit 1", "none slot 1 weight 100",
		},
		FileSchedulerCap: {"", "0", "-1", "none"},
	} {
		for _, text := range texts {
			if v, err := ParseValue(file, text); err == nil {
				t.Errorf("%s %q reads as %v, want an error", file, text, v)
			}
		}
	}
	if err := (SchedulerGroup{Class: SchedulerBE, Weight: 100}).Valid(); err == nil {
		t.Error("a weight without a slot is valid")
	}
}

// TestOrdersNarrowByTheirQuota checks that of two orders the one with the
// smaller quota is the narrower.
func TestOrdersNarrowByTheirQuota(t *testing.T) {
	group := func(slot int, quota unit.MilliCPU) SchedulerGroup {
		return SchedulerGroup{Class: SchedulerBE, Slot: slot, Weight: 100, Quota: quota}
	}
	for _, c := range []struct {
		a, b Value
		want int
	}{
		{group(1, 500), group(1, 0), -1},
		{group(1, 0), group(1, 500), 1},
		{group(1, 500), group(1, 700), -1},
		{group(1, 500), group(1, 500), 0},
		{group(1, 500), group(2, 700), 0},
		{group(1, 500), SchedulerGroup{}, 0},
		{SchedulerCap{Most: 1}, SchedulerCap{}, -1},
		{SchedulerCap{Most: 2}, SchedulerCap{Most: 1}, 1},
		{SchedulerCap{Most: 2}, Maximum{Max: 1}, 0},
	} {
		if got := c.a.CompareWidth(c.b); got != c.want {
			t.Errorf("%v against %v: %d, want %d", c.a, c.b, got, c.want)
		}
	}
}
