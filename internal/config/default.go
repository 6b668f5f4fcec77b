package config

import (
	"reflect"
	"time"

	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// defaults contains the values of unset keys. Koordinator's keys have
// Koordinator's defaults (pkg/util/sloconfig). A key that is absent here has no
// default, and its feature is off. No other place has defaults.
var defaults = Strategies{
	Threshold: Threshold{
		Enable:                          node.Some(false),
		CPUSuppressThresholdPercent:     node.Some[unit.Percent](65),
		CPUSuppressPolicy:               node.Some("cpuset"),
		CPUSuppressLendLSR:              node.Some(true),
		CPUEvictBEUsageThresholdPercent: node.Some[unit.Percent](90),
		CPUEvictTimeWindowSeconds:       node.Some[int64](60), // Tenon's own default, because Koordinator has none
		EvictGracePeriodSeconds:         node.Some[int64](10), // Tenon's own key
		CPUEvictPolicy:                  node.Some("evictByRealLimit"),
	},
	QOS: QOS{
		Policies:    Policies{CPUPolicy: node.Some("groupIdentity"), HoldMicroseconds: node.Some[int64](200), LongSlices: node.Some(true), Trials: node.Some(true), LimitSeats: node.Some(false), ReclaimFree: node.Some[unit.Percent](0)},
		LSRClass:    classDefaults(2, true, 100, 95, 20, -25),
		LSClass:     classDefaults(2, true, 100, 95, 20, -25),
		BEClass:     classDefaults(-1, false, 30, 95, 20, 50),
		SystemClass: classDefaults(0, false, 100, 0, 50, 0),
	},
	Burst: Burst{
		Policy:                     node.Some("none"),
		CPUBurstPercent:            node.Some[unit.Percent](1000),
		CFSQuotaBurstPercent:       node.Some[unit.Percent](300),
		CFSQuotaBurstPeriodSeconds: node.Some[int64](-1),
		SharePoolThresholdPercent:  node.Some[unit.Percent](50),
	},
	Colocation: Colocation{
		Enable:                         node.Some(false),
		MetricAggregateDurationSeconds: node.Some[int64](300),
		MetricReportIntervalSeconds:    node.Some[int64](60),
		MetricAggregatePolicy:          Aggregate{Durations: []Duration{Duration(5 * time.Minute), Duration(10 * time.Minute), Duration(30 * time.Minute)}},
		MetricMemoryCollectPolicy:      node.Some("usageWithoutPageCache"),
		CPUReclaimThresholdPercent:     node.Some[unit.Percent](60),
		CPUCalculatePolicy:             node.Some("usage"),
		MemoryReclaimThresholdPercent:  node.Some[unit.Percent](65),
		MemoryCalculatePolicy:          node.Some("usage"),
		MinServiceRequestPercent:       node.Some[unit.Percent](0), // Tenon's own key
		DegradeTimeMinutes:             node.Some[int64](15),
		UpdateTimeThresholdSeconds:     node.Some[int64](300),
		ResourceDiffThreshold:          node.Some(0.1),
		MidCPUThresholdPercent:         node.Some[unit.Percent](100),
		MidMemoryThresholdPercent:      node.Some[unit.Percent](100),
		MidUnallocatedPercent:          node.Some[unit.Percent](0),
		MidStaticCPUReservedPercent:    node.Some[unit.Percent](0),
		MidStaticMemoryReservedPercent: node.Some[unit.Percent](0),
		Peak: PeakPrediction{
			Enable:              node.Some(false),
			SafetyMarginPercent: node.Some[unit.Percent](10),
			ColdStartMinutes:    node.Some[int64](24 * 60),
		},
	},
}

// classDefaults returns the defaults that differ between classes: the group
// identity, whether the class keeps BE off the SMT siblings of its CPUs
// (expels), the end of its cache range, and its watermarks.
func classDefaults(identity int64, expels bool, cacheEnd, watermark unit.Percent, scale, adjust int64) Class {
	return Class{
		CPU: CPUQOS{Enable: node.Some(false), GroupIdentity: node.Some(identity), CoreExpeller: node.Some(expels)},
		Memory: MemoryQOS{
			Enable:            node.Some(false),
			MinLimitPercent:   node.Some[unit.Percent](0),
			LowLimitPercent:   node.Some[unit.Percent](0),
			ThrottlingPercent: node.Some[unit.Percent](0),
			WmarkRatio:        node.Some(watermark),
			WmarkScalePermill: node.Some(scale),
			WmarkMinAdj:       node.Some(adjust),
			PriorityEnable:    node.Some[int64](0),
			Priority:          node.Some[int64](0),
			OomKillGroup:      node.Some[int64](0),
		},
		Resctrl: ResctrlQOS{
			Enable:               node.Some(false),
			CATRangeStartPercent: node.Some[unit.Percent](0),
			CATRangeEndPercent:   node.Some(cacheEnd),
			MBAPercent:           node.Some[unit.Percent](100),
		},
		BlkIO: BlkIOQOS{Enable: node.Some(false)},
		Network: NetworkQOS{
			Enable:         node.Some(false),
			IngressRequest: node.Some(Bandwidth{Percent: 0}),
			IngressLimit:   node.Some(Bandwidth{Percent: 100}),
			EgressRequest:  node.Some(Bandwidth{Percent: 0}),
			EgressLimit:    node.Some(Bandwidth{Percent: 100}),
		},
	}
}

// withDefaults returns s with a default for each unset key.
func (s Strategies) withDefaults() Strategies {
	fill(reflect.ValueOf(&s).Elem(), reflect.ValueOf(defaults))
	return s
}

// fill copies the values that one mapping lacks from another mapping.
func fill(to, from reflect.Value) {
	for _, k := range keysOf(to.Type()) {
		t, f := to.FieldByIndex(k.index), from.FieldByIndex(k.index)
		switch {
		case t.Kind() == reflect.Struct && !isLeaf(t):
			fill(t, f)
		case t.IsZero():
			t.Set(f)
		}
	}
}
