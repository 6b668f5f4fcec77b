package facts

import (
	"testing"
	"time"

	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

func TestAQuotaIsTheKubelets(t *testing.T) {
	for _, c := range []struct {
		limit  node.Maybe[unit.MilliCPU]
		period time.Duration
		want   time.Duration
	}{
		{node.Some[unit.MilliCPU](1500), 100 * time.Millisecond, 150 * time.Millisecond},
		{node.Some[unit.MilliCPU](1), 100 * time.Millisecond, time.Millisecond},
		{node.Some[unit.MilliCPU](0), 100 * time.Millisecond, time.Millisecond},
		{node.Some[unit.MilliCPU](333), 10 * time.Millisecond, 3330 * time.Microsecond},
		{node.Some[unit.MilliCPU](1111), 1500 * time.Microsecond, 1666 * time.Microsecond},
		{node.Some[unit.MilliCPU](1 << 52), time.Second, 1_000_000 * time.Second}, // not the least quota
		{node.Maybe[unit.MilliCPU]{}, 100 * time.Millisecond, node.NoQuota},
	} {
		if got := QuotaOf(c.limit, c.period); got != c.want {
			t.Errorf("Quota(%v, %v) = %v, want %v", c.limit, c.period, got, c.want)
		}
	}
}

func TestALimitThatAnotherManagesIsNotOurs(t *testing.T) {
	c := node.Container{CPULimit: node.Some[unit.MilliCPU](500), MemoryLimit: node.Some[unit.Bytes](1 << 20)}
	if _, ours := CPULimit(&node.Workload{CPUManagedExternally: true}, &c); ours {
		t.Error("cpu.max is set although the kubelet manages it")
	}
	if _, ours := MemoryLimit(&node.Workload{MemoryManagedExternally: true}, &c); ours {
		t.Error("memory.max is set although the kubelet manages it")
	}
	if v, ours := CPULimit(&node.Workload{}, &c); !ours || v != node.Limit(500) {
		t.Errorf("cpu.max is %v, %v", v, ours)
	}
	if v, ours := MemoryLimit(&node.Workload{}, &node.Container{}); !ours || v != unit.MaxBytes {
		t.Errorf("memory.max is %v, %v", v, ours)
	}
}
