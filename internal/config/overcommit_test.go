package config

import (
	"math"
	"reflect"
	"testing"
	"time"

	"tenon.sh/tenon/internal/decide/overcommit"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

func TestColocationByDefaultIsKoordinators(t *testing.T) {
	c := mustParse(t, header+"colocation-config: {enable: true}\n")
	want := overcommit.Config{
		Enable: true,
		CPU:    overcommit.Reclaim{ThresholdPercent: 60, Policy: overcommit.ByUsage}, Memory: overcommit.Reclaim{ThresholdPercent: 65, Policy: overcommit.ByUsage},
		Window: 5 * time.Minute, Look: time.Minute, DegradeAfter: 15 * time.Minute, RenewAfter: 5 * time.Minute, WorthPPM: 100_000,
	}
	if !reflect.DeepEqual(c.Policy.Overcommit, want) || len(c.Notices) > 0 {
		t.Errorf("got %+v with the notices %q, want %+v", c.Policy.Overcommit, c.Notices, want)
	}
	if off := mustParse(t, header+"reserved: {cpu: 1}\ncolocation-config: {cpuReclaimThresholdPercent: 70}\n").Policy.Overcommit; !reflect.DeepEqual(off, overcommit.Config{}) {
		t.Errorf("not enabled, it means %+v", off)
	}
}

func TestEveryKeyOfColocationArrives(t *testing.T) {
	c := mustParse(t, `
apiVersion: tenon.sh/v1alpha1
kind: NodeConfig
cpus: "0-3"
reserved: {cpu: 500m, memory: 1Gi}
rules: [{name: batch, class: BE, units: [batch.slice]}]
colocation-config:
  enable: true
  metricAggregateDurationSeconds: 60
  metricReportIntervalSeconds: 30
  metricMemoryCollectPolicy: usageWithPageCache
  cpuReclaimThresholdPercent: 70
  cpuCalculatePolicy: maxUsageRequest
  memoryReclaimThresholdPercent: 80
  memoryCalculatePolicy: request
  batchCPUThresholdPercent: 50
  batchMemoryThresholdPercent: 0
  minServiceRequestPercent: 20
  degradeTimeMinutes: 5
  updateTimeThresholdSeconds: 120
  resourceDiffThreshold: 0.05
  peakPrediction: {enable: true, safetyMarginPercent: 20, coldStartMinutes: 60}
`)
	want := overcommit.Config{
		Enable: true,
		CPU:    overcommit.Reclaim{ThresholdPercent: 70, LimitPercent: node.Some[unit.Percent](50), Policy: overcommit.ByMaxUsageRequest},
		Memory: overcommit.Reclaim{ThresholdPercent: 80, LimitPercent: node.Some[unit.Percent](0), Policy: overcommit.ByRequest},
		Window: time.Minute, Look: 30 * time.Second, DegradeAfter: 5 * time.Minute, RenewAfter: 2 * time.Minute, WorthPPM: 50_000,
		WithPageCache: true, MinServicePercent: 20, ReservedCPU: 500, ReservedMemory: 1 << 30,
		Peak: overcommit.PeakPrediction{Enable: true, MarginPercent: 20, ColdStart: time.Hour},
	}
	if got := c.Policy.NodeCPUs.CPUs; got != unit.CPUSetOf(0, 1, 2, 3) {
		t.Errorf("CPUs %v are counted, want 0-3", got)
	}
	if !reflect.DeepEqual(c.Policy.Overcommit, want) || len(c.Notices) > 0 {
		t.Errorf("got %+v with the notices %q, want %+v", c.Policy.Overcommit, c.Notices, want)
	}
}

func TestTimesWithoutEndEnd(t *testing.T) {
	for _, of := range []time.Duration{time.Second, time.Minute} {
		if got := multiply(node.Some[int64](math.MaxInt64), of); got < 90*365*24*time.Hour {
			t.Errorf("as many %v as there are numbers last %v", of, got)
		}
	}
}
