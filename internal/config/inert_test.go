package config

import (
	"slices"
	"strings"
	"testing"

	"tenon.sh/tenon/internal/decide/evict"
	"tenon.sh/tenon/internal/model/node"
)

// parseWithNotices parses a ConfigMap, which must have no faults. It returns the
// configuration of a node, and all notices.
func parseWithNotices(t *testing.T, data map[string]string) (NodeConfig, []string) {
	t.Helper()
	c := cluster(t, data)
	n := nodeConfig(t, c, nil, nil)
	return n, slices.Concat(c.Notices(), n.Notices)
}

// TestAValueThatKoordinatorAcceptsKeepsItsSection checks values without an
// effect that clusters have today. The other values of the section must stay in
// force, and there must be a notice.
func TestAValueThatKoordinatorAcceptsKeepsItsSection(t *testing.T) {
	threshold := func(keys string) map[string]string {
		return map[string]string{keyThreshold: `{"clusterStrategy":{"enable":true,"cpuSuppressThresholdPercent":55,"memoryEvictThresholdPercent":0,` + keys + `}}`}
	}
	suppresses := func(n NodeConfig) bool { return n.Policy.Suppress.Enable && n.Policy.Suppress.ThresholdPercent == 55 }
	noEviction := func(n NodeConfig) bool { return suppresses(n) && n.Policy.Evict == evict.Config{} }
	qos := func(keys string) map[string]string {
		return map[string]string{keyQOS: `{"clusterStrategy":{"lsClass":{"cpuQOS":{"enable":true}},` + keys + `}}`}
	}
	isolates := func(n NodeConfig) bool { return n.Policy.CPUQOS.Enable && n.Policy.CPUQOS.Identity == nil }
	for name, tc := range map[string]struct {
		data   map[string]string
		holds  func(NodeConfig) bool
		notice string
	}{
		"a lower end above its range": {threshold(`"cpuEvictBESatisfactionLowerPercent":70,"cpuEvictBESatisfactionUpperPercent":100`), noEviction,
			"resource-threshold-config.clusterStrategy.cpuEvictBESatisfactionLowerPercent: 70: want a whole number from 1 to 60; it counts as not set"},
		"a lower end of 0": {threshold(`"cpuEvictBESatisfactionLowerPercent":0,"cpuEvictBESatisfactionUpperPercent":80`), noEviction,
			"cpuEvictBESatisfactionLowerPercent: 0: want a whole number from 1 to 60; it counts as not set"},
		"ends that are crossed": {threshold(`"cpuEvictThresholdPercent":60,"cpuEvictLowerPercent":80`), noEviction,
			"resource-threshold-config.clusterStrategy.cpuEvictLowerPercent: 80: want less than cpuEvictThresholdPercent, which is 60; both count as not set"},
		"a minimum above the threshold": {threshold(`"cpuSuppressMinPercent":70`), func(n NodeConfig) bool { return suppresses(n) && n.Policy.Suppress.MinPercent == 70 },
			"cpuSuppressMinPercent: 70: want at most cpuSuppressThresholdPercent, which is 55; BE keeps cpuSuppressMinPercent in any case"},
		"no bandwidth": {qos(`"beClass":{"resctrlQOS":{"enable":true,"mbaPercent":0}}`), func(n NodeConfig) bool { return isolates(n) && n.Policy.Cache.Classes[node.BE].Bandwidth == 100 },
			"resource-qos-config.clusterStrategy.beClass.resctrlQOS.mbaPercent: 0: want a whole number from 1 to 100; it counts as not set"},
		"a range of cache that is empty": {qos(`"beClass":{"resctrlQOS":{"enable":true,"catRangeStartPercent":40}}`), func(n NodeConfig) bool { return isolates(n) && n.Policy.Cache.Classes[node.BE].End == 30 },
			"beClass.resctrlQOS.catRangeStartPercent: 40: want less than catRangeEndPercent, which is 30 by default; both count as not set"},
		"an identity of BE above LS": {qos(`"beClass":{"cpuQOS":{"enable":true,"groupIdentity":2}}`), isolates,
			"beClass.cpuQOS.groupIdentity: 2: want -1 or 0: BE must not go before other classes; it counts as not set"},
		"no weight and no latency": {qos(`"beClass":{"blkioQOS":{"enable":true,"blocks":[{"name":"vda","ioCfg":{"readBPS":7,"ioWeightPercent":0,"readLatency":0}}]}}`),
			func(n NodeConfig) bool {
				d := n.Policy.IO.Classes[node.BE]
				return isolates(n) && len(d) == 1 && d[0].ReadBPS == 7 && d[0].WeightPercent == 0
			},
			"beClass.blkioQOS.blocks[0].ioCfg.ioWeightPercent: 0: want a whole number from 1 to 100; it counts as not set"},
		"a block without a name": {qos(`"beClass":{"blkioQOS":{"enable":true,"blocks":[{"ioCfg":{"readBPS":7}},{"name":"vda"}]}}`),
			func(n NodeConfig) bool { return isolates(n) && len(n.Policy.IO.Classes[node.BE]) == 1 },
			"beClass.blkioQOS.blocks[0].name: missing: want a device such as /dev/vda, or a volume group; this block has no effect"},
		"a policy of memory for CPU": {map[string]string{keyColocation: `{"enable":true,"cpuCalculatePolicy":"request"}`}, func(n NodeConfig) bool {
			return n.Policy.Overcommit.Enable && n.Policy.Overcommit.CPU.Policy == "usage"
		},
			`colocation-config.cpuCalculatePolicy: "request": want one of usage, maxUsageRequest; it counts as not set`},
		"an unknown policy for CPU": {map[string]string{keyColocation: `{"enable":true,"cpuCalculatePolicy":"peak","memoryCalculatePolicy":"peak"}`}, func(n NodeConfig) bool {
			return n.Policy.Overcommit.Enable && n.Policy.Overcommit.CPU.Policy == "usage" && n.Policy.Overcommit.Memory.Policy == "usage"
		},
			`colocation-config.memoryCalculatePolicy: "peak": want one of usage, request, maxUsageRequest; it counts as not set`},
		"an unknown measure of memory": {map[string]string{keyColocation: `{"enable":true,"metricMemoryCollectPolicy":"rss"}`}, func(n NodeConfig) bool { return n.Policy.Overcommit.Enable },
			`colocation-config.metricMemoryCollectPolicy: "rss": want one of usageWithoutPageCache, usageWithHotPageCache, usageWithPageCache; it counts as not set`},
		"a mode of mid that is the default": {map[string]string{keyColocation: `{"enable":true,"midReclaimMode":"dynamic"}`}, func(n NodeConfig) bool { return n.Policy.Overcommit.Enable },
			`colocation-config.midReclaimMode: "dynamic": want static; it counts as not set`},
		"an unknown policy of CPU suppress": {threshold(`"cpuSuppressPolicy":"cpuSet","cpuEvictPolicy":"evictByLimit"`), func(n NodeConfig) bool { return suppresses(n) && n.Policy.Suppress.Policy == "cpuset" },
			`resource-threshold-config.clusterStrategy.cpuSuppressPolicy: "cpuSet": want one of cpuset, cfsQuota; it counts as not set`},
		"an operator of node affinity": {map[string]string{keyThreshold: `{"clusterStrategy":{"enable":true,"cpuSuppressThresholdPercent":55,"memoryEvictThresholdPercent":0},
			"nodeStrategies":[{"nodeSelector":{"matchExpressions":[{"key":"a","operator":"Lt","values":["1"]}]},"enable":false},{"nodeSelector":{},"cpuSuppressMinPercent":5}]}`},
			func(n NodeConfig) bool { return suppresses(n) && n.Policy.Suppress.MinPercent == 5 },
			`nodeStrategies[0].nodeSelector.matchExpressions[0].operator: "Lt": want one of In, NotIn, Exists, DoesNotExist; this entry applies to no node`},
		"in an entry": {map[string]string{keyThreshold: `{"clusterStrategy":{"enable":true,"cpuSuppressThresholdPercent":55,"memoryEvictThresholdPercent":0,"cpuEvictBESatisfactionLowerPercent":30,"cpuEvictBESatisfactionUpperPercent":60},
			"nodeStrategies":[{"nodeSelector":{},"cpuEvictBESatisfactionLowerPercent":0}]}`}, noEviction,
			"line 2: resource-threshold-config.nodeStrategies[0].cpuEvictBESatisfactionLowerPercent: 0: want a whole number from 1 to 60; it counts as not set"},
	} {
		t.Run(name, func(t *testing.T) {
			n, notices := parseWithNotices(t, tc.data)
			if !tc.holds(n) {
				t.Errorf("the section means %+v", n.Policy)
			}
			if !slices.ContainsFunc(notices, func(s string) bool { return strings.HasSuffix(s, tc.notice) }) {
				t.Errorf("notices %q, want one of %q", notices, tc.notice)
			}
		})
	}
}

// TestSwitchesAreTrueOrOne checks that a switch may be written as true or as 1,
// because Koordinator and ACK use both.
func TestSwitchesAreTrueOrOne(t *testing.T) {
	for _, v := range []string{"true", "1"} {
		n, notices := parseWithNotices(t, map[string]string{
			keyQOS:    `{"clusterStrategy":{"lsClass":{"cpuQOS":{"enable":` + v + `},"memoryQOS":{"enable":true,"pageCacheEnable":` + v + `,"pageCacheReclaimSync":` + v + `,"oomKillGroup":` + v + `}},"beClass":{"cpuQOS":{"enable":true,"schedIdle":` + v + `}}}}`,
			keySystem: `{"clusterStrategy":{"pageCacheLimitEnabled":` + v + `,"memcgReapBackGround":` + v + `}}`,
		})
		if !n.Policy.CPUQOS.Enable || n.Policy.CPUQOS.Means != node.FeatureCPUIdle {
			t.Errorf("%s: CPU QoS means %+v", v, n.Policy.CPUQOS)
		}
		for _, key := range []string{"resource-qos-config.lsClass.memoryQOS.pageCacheEnable", "resource-qos-config.lsClass.memoryQOS.pageCacheReclaimSync", "resource-qos-config.lsClass.memoryQOS.oomKillGroup", "system-config.pageCacheLimitEnabled", "system-config.memcgReapBackGround"} {
			if !slices.Contains(notices, key+" "+notActedOn) {
				t.Errorf("%s: %s is not read as on: %q", v, key, notices)
			}
		}
	}
	if _, faults := ParseConfigMap(map[string]string{keyQOS: `{"clusterStrategy":{"lsClass":{"cpuQOS":{"enable":2}}}}`}); len(faults) != 1 {
		t.Errorf("faults %v for a switch that is 2", faults)
	}
}

// TestAnEmptyTextIsNotSet checks the texts that templates write for unset
// values.
func TestAnEmptyTextIsNotSet(t *testing.T) {
	n, notices := parseWithNotices(t, map[string]string{
		keyThreshold:  `{"clusterStrategy":{"enable":true,"memoryEvictThresholdPercent":0,"cpuSuppressPolicy":"","cpuEvictPolicy":"","cpuSuppressMinPercent":""}}`,
		keyQOS:        `{"clusterStrategy":{"policies":{"cpuPolicy":"","netQOSPolicy":""},"beClass":{"cpuQOS":{"enable":true}}}}`,
		keyBurst:      `{"clusterStrategy":{"policy":""}}`,
		keyColocation: `{"enable":true,"cpuCalculatePolicy":"","memoryCalculatePolicy":"","midReclaimMode":"","metricMemoryCollectPolicy":""}`,
		keyHostApps:   `{"applications":[{"name":"a","qos":"LS","priority":"","cgroupPath":{"base":"","relativePath":"a"}}]}`,
	})
	if len(notices) > 0 {
		t.Errorf("notices %q", notices)
	}
	if p := n.Policy; p.Suppress.Policy != "cpuset" || !p.CPUQOS.Enable || p.Burst.Policy != "" || p.Overcommit.CPU.Policy != "usage" {
		t.Errorf("empty texts mean %+v", p)
	}
	if b, _, faults := ReadLenientJSON[Burst](`{"policy":"","cpuBurstPercent":200}`); len(faults) > 0 || b.Policy.Known() || b.CPUBurstPercent.Or(0) != 200 {
		t.Errorf("in an annotation: %+v, %v", b, faults)
	}
}

// TestKeysAreReadInAnyCase checks spellings from Koordinator's own manuals and
// tests.
func TestKeysAreReadInAnyCase(t *testing.T) {
	n, notices := parseWithNotices(t, map[string]string{
		keyThreshold: `{"ClusterStrategy":{"Enable":true,"CPUSuppressThresholdPercent":55,"cpuEvictThresholdPercent":80,"memoryEvictThresholdPercent":0,"CPUEvictTimeWindowSeconds":300},
			"NodeStrategies":[{"nodeselector":{"MatchLabels":{"a":"b"}},"cpuSuppressThresholdPercent":10}]}`,
	})
	if p := n.Policy; !p.Suppress.Enable || p.Suppress.ThresholdPercent != 55 || p.Evict.CPU.Window.Minutes() != 5 {
		t.Errorf("the keys mean %+v", p)
	}
	for _, want := range []string{
		"line 1: resource-threshold-config.ClusterStrategy: counts as clusterStrategy: want this spelling",
		"line 1: resource-threshold-config.clusterStrategy.CPUEvictTimeWindowSeconds: counts as cpuEvictTimeWindowSeconds: want this spelling",
		"line 2: resource-threshold-config.nodeStrategies[0].nodeselector: counts as nodeSelector: want this spelling",
		"line 2: resource-threshold-config.nodeStrategies[0].nodeSelector.MatchLabels: counts as matchLabels: want this spelling",
	} {
		if !slices.Contains(notices, want) {
			t.Errorf("%q is missing in\n%s", want, strings.Join(notices, "\n"))
		}
	}
	// If a section has two spellings of a key, the exact spelling applies.
	c := cluster(t, map[string]string{keyThreshold: `{"clusterStrategy":{"Enable":false,"enable":true,"memoryEvictThresholdPercent":0}}`})
	if !nodeConfig(t, c, nil, nil).Policy.Suppress.Enable || len(c.Notices()) != 1 || !strings.Contains(c.Notices()[0], "Enable: unknown key: did you mean enable?") {
		t.Errorf("notices %q", c.Notices())
	}
	q, found, faults := ReadLenientJSON[BlkIOQOS](`{"blocks":[{"name":"/dev/vdb","type":"device","iocfg":{"readBPS":1048576,"writeIOPS":100}}]}`)
	if len(faults) > 0 || len(found) != 1 || q.Blocks[0].IO.ReadBPS.Or(0) != 1048576 {
		t.Errorf("in an annotation: %+v, %v, %v", q, found, faults)
	}
}

// TestEntriesForTheSameNodeAreNoticed checks which selectors can select the same
// node.
func TestEntriesForTheSameNodeAreNoticed(t *testing.T) {
	for second, overlap := range map[string]bool{
		`{}`:                        true,
		`{"matchLabels":{"a":"1"}}`: true,
		`{"matchLabels":{"a":"2"}}`: false,
		`{"matchLabels":{"b":"1"}}`: true,
		`{"matchExpressions":[{"key":"a","operator":"In","values":["2","1"]}]}`:                                                        true,
		`{"matchExpressions":[{"key":"a","operator":"In","values":["2","3"]}]}`:                                                        false,
		`{"matchExpressions":[{"key":"a","operator":"NotIn","values":["1"]}]}`:                                                         false,
		`{"matchExpressions":[{"key":"a","operator":"DoesNotExist"}]}`:                                                                 false,
		`{"matchExpressions":[{"key":"a","operator":"Exists"}]}`:                                                                       true,
		`{"matchLabels":{"b":"1"},"matchExpressions":[{"key":"b","operator":"NotIn","values":["1"]}]}`:                                 false,
		`{"matchExpressions":[{"key":"b","operator":"Exists"},{"key":"b","operator":"NotIn","values":["1"]}],"matchLabels":{"a":"1"}}`: true,
	} {
		c := cluster(t, map[string]string{keyBurst: `{"nodeStrategies":[{"nodeSelector":{"matchLabels":{"a":"1"}},"policy":"auto"},{"nodeSelector":` + second + `,"policy":"none"}]}`})
		var want []string
		if overlap {
			want = []string{"cpu-burst-config.nodeStrategies[1]: cpu-burst-config.nodeStrategies[0] can select the same node: there only that entry counts"}
		}
		if !slices.Equal(c.Notices(), want) {
			t.Errorf("%s: notices %q, want %q", second, c.Notices(), want)
		}
	}
}

// TestMemoryEvictionThatKoordinatorsChartHasIsNoticed checks the notice for a
// ConfigMap that depends on a default of Koordinator.
func TestMemoryEvictionThatKoordinatorsChartHasIsNoticed(t *testing.T) {
	for text, want := range map[string]bool{
		`{"clusterStrategy":{"enable":true}}`:                                   true,
		`{"clusterStrategy":{"enable":false}}`:                                  false,
		`{"clusterStrategy":{"enable":true,"memoryEvictThresholdPercent":70}}`:  false,
		`{"clusterStrategy":{"enable":true,"memoryEvictThresholdPercent":0}}`:   false,
		`{"clusterStrategy":{"enable":true,"memoryEvictThresholdPercent":101}}`: false,
	} {
		c, _ := ParseConfigMap(map[string]string{keyThreshold: text})
		if got := slices.Contains(c.Notices(), noMemoryEviction); got != want {
			t.Errorf("%s: noticed %v, want %v", text, got, want)
		}
	}
}

// TestAKeyOfANodesAnnotationThatIsMisspeltIsNoticed checks the notices for an
// annotation of a node that contains misspelt keys.
func TestAKeyOfANodesAnnotationThatIsMisspeltIsNoticed(t *testing.T) {
	c := cluster(t, map[string]string{keyColocation: `{"enable":true}`})
	n := nodeConfig(t, c, nil, map[string]string{annotationColocation: `{"cpuReclaimTreshold":70}`, annotationReservation: `{"reservedCPU":"0"}`})
	for _, want := range []string{
		"annotation " + annotationColocation + ".cpuReclaimTreshold: unknown key: did you mean cpuReclaimThresholdPercent?",
		"annotation " + annotationReservation + ".reservedCPU: unknown key: did you mean reservedCPUs?",
	} {
		if !slices.Contains(n.Notices, want) {
			t.Errorf("%q is missing in %q", want, n.Notices)
		}
	}
}
