package config

import (
	"encoding/json"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"tenon.sh/tenon/internal/decide/burst"
	"tenon.sh/tenon/internal/decide/evict"
	"tenon.sh/tenon/internal/decide/suppress"
	"tenon.sh/tenon/internal/model/unit"
)

// cluster parses a ConfigMap. The test fails if it has faults.
func cluster(t *testing.T, data map[string]string) Cluster {
	t.Helper()
	c, faults := ParseConfigMap(data)
	for _, f := range faults {
		t.Error(f)
	}
	return c
}

// nodeConfig returns the configuration of a node. The test fails if a label or
// annotation of the node has a fault.
func nodeConfig(t *testing.T, c Cluster, labels, annotations map[string]string) NodeConfig {
	t.Helper()
	n, faults := c.Node(labels, annotations)
	for _, f := range faults {
		t.Error(f)
	}
	return n
}

var big = map[string]string{"size": "big"}

func TestConfigMapThatIsNotThereMeansTheDefaultsOfAFileWithoutSections(t *testing.T) {
	got := nodeConfig(t, cluster(t, nil), nil, nil).Policy
	want := mustParse(t, header).Policy
	if diff := cmp.Diff(want, got, cmp.Exporter(func(reflect.Type) bool { return true })); diff != "" {
		t.Errorf("(-file +ConfigMap):\n%s", diff)
	}
}

// A text must give the same policies in the ConfigMap and in the file of the
// node.
func TestConfigMapMeansWhatTheNodesFileMeans(t *testing.T) {
	data := map[string]string{
		keyThreshold:  `{"clusterStrategy": {"enable": true, "cpuSuppressThresholdPercent": 60, "cpuSuppressPolicy": "cfsQuota", "memoryEvictThresholdPercent": 80}}`,
		keyQOS:        `{"clusterStrategy": {"lsClass": {"cpuQOS": {"enable": true}, "memoryQOS": {"enable": true, "minLimitPercent": 10}}, "beClass": {"resctrlQOS": {"enable": true}, "blkioQOS": {"enable": true, "blocks": [{"name": "/dev/vda", "ioCfg": {"readIOPS": 100}}]}}}}`,
		keyBurst:      `{"clusterStrategy": {"policy": "auto", "cfsQuotaBurstPercent": 200}}`,
		keyColocation: `{"enable": true, "cpuReclaimThresholdPercent": 70, "memoryCalculatePolicy": "request"}`,
	}
	file := header
	for key, text := range data {
		file += key + ": '" + text + "'\n"
	}
	want := mustParse(t, file)
	got := nodeConfig(t, cluster(t, data), nil, nil)
	if diff := cmp.Diff(want.Policy, got.Policy, cmp.Exporter(func(reflect.Type) bool { return true })); diff != "" {
		t.Errorf("(-file +ConfigMap):\n%s", diff)
	}
	if !got.Policy.Overcommit.Enable || got.Policy.Suppress.ThresholdPercent != 60 {
		t.Errorf("the ConfigMap means %+v", got.Policy)
	}
}

// TestTheChartsConfigMapBoundsNothing checks that a new installation in a cluster
// does not bound BE by CPU suppress, and evicts no work.
func TestTheChartsConfigMapBoundsNothing(t *testing.T) {
	text, err := os.ReadFile("../../deploy/chart/tenon/values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var values struct{ Strategies map[string]any }
	if err := yaml.Unmarshal(text, &values); err != nil {
		t.Fatal(err)
	}
	if _, set := values.Strategies[keyThreshold]; !set {
		t.Fatalf("%s is missing in %v", keyThreshold, values.Strategies)
	}
	data := map[string]string{}
	for key, strategy := range values.Strategies {
		text, err := json.Marshal(strategy)
		if err != nil {
			t.Fatal(err)
		}
		data[key] = string(text)
	}
	c := cluster(t, data)
	p := nodeConfig(t, c, nil, nil).Policy
	if p.Suppress.Enable || p.Evict != (evict.Config{}) || !p.CPUQOS.Enable || !p.Overcommit.Enable || len(c.Notices()) > 0 {
		t.Errorf("the chart's ConfigMap means %+v, with the notices %q", p, c.Notices())
	}
}

// TestEnableAloneHasKoordinatorsThreshold checks a ConfigMap that enables the
// section without a threshold. It must have the same effect as in Koordinator.
func TestEnableAloneHasKoordinatorsThreshold(t *testing.T) {
	c := cluster(t, map[string]string{keyThreshold: `{"clusterStrategy": {"enable": true}}`})
	want := suppress.Config{Enable: true, ThresholdPercent: 65, Policy: suppress.ByCPUSet}
	if got := nodeConfig(t, c, nil, nil).Policy.Suppress; got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestConfigMapFirstEntryThatSelectsTheNodeWins(t *testing.T) {
	c := cluster(t, map[string]string{keyThreshold: `{
		"clusterStrategy": {"enable": true, "cpuSuppressThresholdPercent": 65, "cpuSuppressMinPercent": 5},
		"nodeStrategies": [
			{"name": "none", "cpuSuppressThresholdPercent": 10},
			{"name": "big", "nodeSelector": {"matchLabels": {"size": "big"}}, "cpuSuppressThresholdPercent": 80},
			{"name": "any", "nodeSelector": {}, "cpuSuppressThresholdPercent": 70}
		]}`})
	for name, tc := range map[string]struct {
		labels map[string]string
		want   unit.Percent
		chosen string
	}{
		"the first that selects it":                {big, 80, keyThreshold + ".nodeStrategies[1]"},
		"an empty selector selects any":            {nil, 70, keyThreshold + ".nodeStrategies[2]"},
		"one without a selector holds for no node": {map[string]string{"name": "none"}, 70, keyThreshold + ".nodeStrategies[2]"},
	} {
		t.Run(name, func(t *testing.T) {
			n := nodeConfig(t, c, tc.labels, nil)
			if s := n.Policy.Suppress; s.ThresholdPercent != tc.want || s.MinPercent != 5 || !s.Enable {
				t.Errorf("suppress is %+v; want %d %% and what the cluster says", s, tc.want)
			}
			if !slices.Equal(n.Chosen, []string{tc.chosen}) {
				t.Errorf("chosen %v, want %s", n.Chosen, tc.chosen)
			}
		})
	}
}

func TestNodeSelectorKnowsAllOperators(t *testing.T) {
	for text, want := range map[string]bool{
		`{"matchExpressions": [{"key": "size", "operator": "In", "values": ["big", "huge"]}]}`:       true,
		`{"matchExpressions": [{"key": "size", "operator": "In", "values": ["small"]}]}`:             false,
		`{"matchExpressions": [{"key": "size", "operator": "NotIn", "values": ["small"]}]}`:          true,
		`{"matchExpressions": [{"key": "other", "operator": "NotIn", "values": ["small"]}]}`:         true,
		`{"matchExpressions": [{"key": "size", "operator": "Exists"}]}`:                              true,
		`{"matchExpressions": [{"key": "size", "operator": "DoesNotExist"}]}`:                        false,
		`{"matchLabels": {"size": "big"}, "matchExpressions": [{"key": "x", "operator": "Exists"}]}`: false,
	} {
		c := cluster(t, map[string]string{keyBurst: `{"nodeStrategies": [{"nodeSelector": ` + text + `, "policy": "auto"}]}`})
		if got := nodeConfig(t, c, big, nil).Policy.Burst.Policy == burst.Both; got != want {
			t.Errorf("%s selects size=big: %v, want %v", text, got, want)
		}
	}
}

// TestAnEntryReplacesTheListOfHostApplications checks that an entry can say that
// its nodes have other programs, or none.
func TestAnEntryReplacesTheListOfHostApplications(t *testing.T) {
	c := cluster(t, map[string]string{keyHostApps: `{"applications": [{"name": "batchd", "qos": "BE"}], "nodeConfigs": [
		{"nodeSelector": {"matchLabels": {"role": "db"}}, "applications": []},
		{"nodeSelector": {"matchLabels": {"role": "gpu"}}},
		{"nodeSelector": {"matchLabels": {"role": "web"}}, "applications": [{"name": "batchd", "qos": "LS"}]}]}`})
	for role, want := range map[string]string{"other": "batchd BE", "db": "", "gpu": "", "web": "batchd LS"} {
		var got []string
		for _, a := range nodeConfig(t, c, map[string]string{"role": role}, nil).Applications {
			got = append(got, a.Name.Or("")+" "+a.Class.Or(""))
		}
		if strings.Join(got, ", ") != want {
			t.Errorf("%s: %q, want %q", role, got, want)
		}
	}
}

func TestConfigMapBadKeyKeepsItsOldValueAndTheOthersChange(t *testing.T) {
	last := cluster(t, map[string]string{keyThreshold: `{"clusterStrategy": {"enable": true, "cpuSuppressThresholdPercent": 50}}`, keyBurst: `{"clusterStrategy": {"policy": "auto"}}`})
	for name, bad := range map[string]string{
		"not JSON":          `{"clusterStrategy": `,
		"out of range":      `{"clusterStrategy": {"enable": true, "cpuSuppressThresholdPercent": 101}}`,
		"of the wrong kind": `{"clusterStrategy": {"enable": "yes"}}`,
		"a list":            `[]`,
		"a bad entry":       `{"nodeStrategies": [{"nodeSelector": {"matchLabels": []}}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			c, faults := ParseConfigMapOver(last, map[string]string{keyThreshold: bad, keyColocation: `{"enable": true}`})
			p := nodeConfig(t, c, nil, nil).Policy
			if len(faults) == 0 || p.Suppress.ThresholdPercent != 50 {
				t.Errorf("%d faults, suppress at %d %%; want faults and the 50 %% of before", len(faults), p.Suppress.ThresholdPercent)
			}
			if !p.Overcommit.Enable || p.Burst.Policy != "" {
				t.Errorf("the key that came and the one that went are not in force: %+v", p)
			}
			if again, faults := ParseConfigMap(c.Data()); len(faults) > 0 || !reflect.DeepEqual(again.threshold, c.threshold) {
				t.Errorf("the texts in force, %v, do not give the same: %v", c.Data(), faults)
			}
		})
	}
}

func TestConfigMapFaultsNameKeyPathValueAndRange(t *testing.T) {
	for name, tc := range map[string]struct{ key, text, want string }{
		"a value":                 {keyThreshold, "{\"clusterStrategy\": {\n \"cpuSuppressThresholdPercent\": 101\n}}", `line 2: resource-threshold-config.clusterStrategy.cpuSuppressThresholdPercent: 101: want a whole number from 0 to 100`},
		"a value of an entry":     {keyColocation, "{\"nodeConfigs\": [\n{\"nodeSelector\": {}, \"degradeTimeMinutes\": 0}]}", `line 2: colocation-config.nodeConfigs[0].degradeTimeMinutes: 0: want a whole number of at least 1`},
		"a word":                  {keyBurst, `{"clusterStrategy": {"policy": "maybe"}}`, `cpu-burst-config.clusterStrategy.policy: "maybe": want one of none, cpuBurstOnly, cfsQuotaBurstOnly, auto`},
		"a ratio of a model":      {keyNormalization, `{"ratioModel": {"Xeon": {"baseRatio": 6}}}`, `cpu-normalization-config.ratioModel[Xeon].baseRatio: 6: want a number from 1 to 5`},
		"a ratio of a resource":   {keyAmplification, `{"resourceAmplificationRatio": {"cpu": 0.5}}`, `resource-amplification-config.resourceAmplificationRatio[cpu]: 0.5: want a number of at least 1`},
		"a host application":      {keyHostApps, `{"applications": [{"qos": "LS"}]}`, `host-application-config.applications[0].name: missing: want a name that no other application has`},
		"a kernel setting":        {keySystem, `{"clusterStrategy": {"watermarkScaleFactor": 401}}`, `system-config.clusterStrategy.watermarkScaleFactor: 401: want a whole number from 1 to 400`},
		"JSON that breaks off":    {keySystem, "{\n\"clusterStrategy\"\n:{", `system-config: not JSON: line 3: unexpected end of JSON input`},
		"a key that stands twice": {keySystem, `{"clusterStrategy": {"watermarkScaleFactor": 1, "watermarkScaleFactor": 2}}`, `system-config.clusterStrategy.watermarkScaleFactor: this key occurs twice`},
	} {
		t.Run(name, func(t *testing.T) {
			_, faults := ParseConfigMap(map[string]string{tc.key: tc.text})
			if len(faults) != 1 || !strings.HasSuffix(faults[0].String(), tc.want) {
				t.Errorf("faults\n%v\nwant\n%s", faults, tc.want)
			}
		})
	}
}

func TestConfigMapUnknownKeysWarnAndTheRestHolds(t *testing.T) {
	for name, tc := range map[string]struct{ key, text, want string }{
		"misspelt":               {keyThreshold, `{"clusterStrategy": {"enable": true, "memoryEvictThresholdPercent": 0, "cpuSuppressTreshold": 70}}`, "resource-threshold-config.clusterStrategy.cpuSuppressTreshold: unknown key: did you mean cpuSuppressThresholdPercent?"},
		"beside clusterStrategy": {keyThreshold, `{"enable": true, "clusterStrategy": {"enable": true, "memoryEvictThresholdPercent": 0}}`, "resource-threshold-config.enable: unknown key here: it belongs in clusterStrategy"},
		"of another section":     {keyBurst, `{"clusterStrategy": {"policy": "auto", "degradeTimeMinutes": 3}}`, "cpu-burst-config.clusterStrategy.degradeTimeMinutes: unknown key here: it belongs in colocation-config"},
		"a whole section":        {"resource-treshold-config", `{}`, "resource-treshold-config: unknown key: did you mean resource-threshold-config?"},
		"of an entry":            {keyColocation, `{"nodeConfigs": [{"nodeSelector": {}, "enabel": true}]}`, "colocation-config.nodeConfigs[0].enabel: unknown key: did you mean enable?"},
		"an operator":            {keyThreshold, `{"clusterStrategy": {"enable": true, "memoryEvictThresholdPercent": 0}, "nodeStrategies": [{"nodeSelector": {"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1"]}]}, "enable": false}]}`, `resource-threshold-config.nodeStrategies[0].nodeSelector.matchExpressions[0].operator: "Gt": want one of In, NotIn, Exists, DoesNotExist; this entry applies to no node`},
		"values that miss":       {keyBurst, `{"nodeStrategies": [{"nodeSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]}}]}`, `cpu-burst-config.nodeStrategies[0].nodeSelector.matchExpressions[0].values: missing: want the values of the label; this entry applies to no node`},
		"values too many":        {keyHostApps, `{"nodeConfigs": [{"nodeSelector": {"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["1"]}]}}]}`, `host-application-config.nodeConfigs[0].nodeSelector.matchExpressions[0].values: 1 values: want none with the operator Exists; this entry applies to no node`},
		"a label of no node":     {keyBurst, `{"nodeStrategies": [{"nodeSelector": {"matchLabels": {"a b": "1"}}}]}`, `cpu-burst-config.nodeStrategies[0].nodeSelector.matchLabels["a b"]: "a b": want the key of a label: 1 to 63 letters, digits, -, _ and ., with a letter or digit at both ends, after an optional DNS name and /; this entry applies to no node`},
		"a value of no label":    {keyBurst, `{"nodeStrategies": [{"nodeSelector": {"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["b*"]}]}}]}`, `cpu-burst-config.nodeStrategies[0].nodeSelector.matchExpressions[0].values[0]: "b*": want the value of a label: at most 63 letters, digits, -, _ and ., with a letter or digit at both ends; this entry applies to no node`},
		"no selector":            {keyColocation, `{"nodeConfigs": [{"enable": true}]}`, "colocation-config.nodeConfigs[0]: it has no nodeSelector, so it applies to no node"},
	} {
		t.Run(name, func(t *testing.T) {
			c := cluster(t, map[string]string{tc.key: tc.text})
			if !slices.Equal(c.Notices(), []string{tc.want}) {
				t.Errorf("notices\n%v\nwant\n%s", c.Notices(), tc.want)
			}
			if tc.key == keyThreshold && !nodeConfig(t, c, nil, nil).Policy.Suppress.Enable {
				t.Error("the key beside it is not in force")
			}
		})
	}
}

func TestConfigMapKeysOfLaterAreReadAndNoticed(t *testing.T) {
	c := cluster(t, map[string]string{
		keySystem:        `{"clusterStrategy": {"minFreeKbytesFactor": 100, "schedFeatures": {"ID_ABSOLUTE_EXPEL": true}, "totalNetworkBandwidth": "10000"}}`,
		keyNormalization: `{"enable": true, "defaultRatio": 1.2, "ratioModel": {"Xeon": {"baseRatio": 1.5, "turboEnabledRatio": 1.6}}}`,
		keyAmplification: `{"enable": true, "resourceAmplificationRatio": {"cpu": 1.5}}`,
		keyHostApps:      `{"applications": [{"name": "agent", "qos": "LS", "priority": "koord-prod", "cgroupPath": {"base": "CgroupRoot", "parentDir": "sys", "relativePath": "agent"}, "strategy": {}}]}`,
		keyColocation:    `{"enable": true, "midCPUThresholdPercent": 50, "extensions": {"a": 1}}`,
		keyQOS:           `{"clusterStrategy": {"lsClass": {"networkQOS": {"enable": true, "ingressRequest": 10}}}}`,
	})
	n := nodeConfig(t, c, nil, nil)
	for _, want := range []string{"system-config.minFreeKbytesFactor", "system-config.schedFeatures", "cpu-normalization-config", "resource-amplification-config", "colocation-config.midCPUThresholdPercent", "resource-qos-config.lsClass.networkQOS"} {
		if !slices.Contains(n.Notices, want+" "+notActedOn) {
			t.Errorf("no notice of %s in %q", want, n.Notices)
		}
	}
	if len(n.Applications) != 1 || valueOf(n.Applications[0].Cgroup.ParentDir) != "sys" {
		t.Errorf("applications %+v, want agent", n.Applications)
	}
}

func TestNodeCannotTurnOnWhatTheClusterLeavesOff(t *testing.T) {
	labels := map[string]string{"size": "big", "node.koordinator.sh/cpu-reclaim-ratio": "0.8"}
	notes := map[string]string{annotationColocation: `{"enable": true}`}
	for name, global := range map[string]string{"off": `"enable": false,`, "not set": ""} {
		t.Run(name, func(t *testing.T) {
			c := cluster(t, map[string]string{keyColocation: `{` + global + `"nodeConfigs": [{"nodeSelector": {"matchLabels": {"size": "big"}}, "enable": true}]}`})
			if nodeConfig(t, c, labels, notes).Policy.Overcommit.Enable {
				t.Error("colocation is on")
			}
		})
	}
	c := cluster(t, map[string]string{keyColocation: `{"enable": true, "nodeConfigs": [{"nodeSelector": {"matchLabels": {"size": "big"}}, "enable": false}]}`})
	if nodeConfig(t, c, big, nil).Policy.Overcommit.Enable {
		t.Error("a node could not turn off what the cluster turns on")
	}
}

func TestNodesAnnotationGoesOverEntriesAndItsRatioLabelsOverThat(t *testing.T) {
	c := cluster(t, map[string]string{keyColocation: `{"enable": true, "cpuReclaimThresholdPercent": 60, "memoryReclaimThresholdPercent": 65, "degradeTimeMinutes": 5,
		"nodeConfigs": [{"nodeSelector": {}, "cpuReclaimThresholdPercent": 70}]}`})
	labels := map[string]string{"node.koordinator.sh/memory-reclaim-ratio": "0.29"}
	notes := map[string]string{annotationColocation: `{"cpuReclaimThresholdPercent": 80, "memoryReclaimThresholdPercent": 90}`}
	o := nodeConfig(t, c, labels, notes).Policy.Overcommit
	if o.CPU.ThresholdPercent != 80 || o.Memory.ThresholdPercent != 29 || o.DegradeAfter.Minutes() != 5 {
		t.Errorf("cpu %d %%, memory %d %%, %v; want 80 of the annotation, 29 of the label, 5 min of the cluster", o.CPU.ThresholdPercent, o.Memory.ThresholdPercent, o.DegradeAfter)
	}
}

func TestNodesBadAnnotationsAndLabelsCountAsMissing(t *testing.T) {
	c := cluster(t, map[string]string{keyColocation: `{"enable": true}`})
	n, faults := c.Node(
		map[string]string{"node.koordinator.sh/cpu-reclaim-ratio": "70%", "node.koordinator.sh/mid-static-cpu-reserved-ratio": "NaN"},
		map[string]string{annotationColocation: `{"cpuReclaimThresholdPercent": -1}`, annotationReservation: `{"reservedCPUs": "x", "applyPolicy": "Default"}`})
	want := []string{
		`annotation node.koordinator.sh/colocation-strategy.cpuReclaimThresholdPercent: -1: want a whole number of at least 0`,
		`label node.koordinator.sh/cpu-reclaim-ratio: "70%": want a number of at least 0, such as 0.7 for 70 %`,
		`label node.koordinator.sh/mid-static-cpu-reserved-ratio: "NaN": want a number from 0 to 1, such as 0.7 for 70 %`,
		`annotation node.koordinator.sh/reservation.reservedCPUs: "x": want CPUs such as 0-1,8`,
	}
	var got []string
	for _, f := range faults {
		got = append(got, f.String())
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("faults (-want +got):\n%s", diff)
	}
	if o := n.Policy.Overcommit; !o.Enable || o.CPU.ThresholdPercent != 60 || o.ReservedCPU != 0 {
		t.Errorf("got %+v, want what the cluster says", o)
	}
}

func TestNodesReservationIsKeptFromBatchWork(t *testing.T) {
	c := cluster(t, map[string]string{keyColocation: `{"enable": true}`, keyThreshold: `{"clusterStrategy": {"enable": true}}`})
	for text, want := range map[string]unit.MilliCPU{
		`{"resources": {"cpu": 2, "memory": 1073741824}}`:                                                        2000,
		`{"resources": {"cpu": 1.5, "memory": "1073741824000m"}}`:                                                1500,
		`{"resources": {"cpu": "1500m", "memory": "1Gi"}}`:                                                       1500,
		`{"resources": {"cpu": "1", "memory": "1Gi"}, "reservedCPUs": "0-3"}`:                                    4000,
		`{"resources": {"cpu": "1", "memory": "1Gi"}, "reservedCPUs": "0-3", "applyPolicy": "ReservedCPUsOnly"}`: 0,
	} {
		policy := nodeConfig(t, c, nil, map[string]string{annotationReservation: text}).Policy
		o := policy.Overcommit
		used, cpus := want, unit.CPUSet{}
		if strings.Contains(text, "reservedCPUs") { // the node reserves certain CPUs and not an amount
			used, cpus = 0, unit.CPUSetOf(0, 1, 2, 3)
		}
		if policy.NodeCPUs.Reserved != used || policy.NodeCPUs.ReservedCPUs != cpus {
			t.Errorf("%s keeps %v and CPUs %q from what batch work may use; want %v and %q", text, policy.NodeCPUs.Reserved, policy.NodeCPUs.ReservedCPUs, used, cpus)
		}
		if o.ReservedCPU != want || want > 0 && o.ReservedMemory != 1<<30 {
			t.Errorf("%s reserves %v and %v; want %v", text, o.ReservedCPU, o.ReservedMemory, want)
		}
	}
}

// TestEveryKeyOfTheConfigMapIsOnThePage checks that docs/kubernetes.md names
// all keys that the file of a node cannot have.
func TestEveryKeyOfTheConfigMapIsOnThePage(t *testing.T) {
	page, err := os.ReadFile("../../docs/kubernetes.md")
	if err != nil {
		t.Fatal(err)
	}
	words := append(slices.Clone(clusterKeys), annotationColocation, annotationReservation)
	for _, r := range ratios {
		words = append(words, r.label)
	}
	for _, keys := range []any{System{}, HostApplications{}, HostApplication{}, HostCgroup{}, Normalization{}, ModelRatio{}, Amplification{}} {
		for _, k := range keysOf(reflect.TypeOf(keys)) {
			words = append(words, k.name)
		}
	}
	for _, w := range words {
		if !strings.Contains(string(page), "`"+w+"`") {
			t.Errorf("docs/kubernetes.md does not name `%s`", w)
		}
	}
}

// FuzzParseConfigMap checks that no text makes the parser panic, and that every
// fault is one non-empty line. The parser must read the texts in force again
// without a fault, and they must give a policy on any node.
func FuzzParseConfigMap(f *testing.F) {
	f.Add(keyThreshold, `{"clusterStrategy": {"enable": true}, "nodeStrategies": [{"name": "a", "nodeSelector": {"matchExpressions": [{"key": "k", "operator": "In", "values": ["v"]}]}}]}`, "0.7")
	f.Add(keyColocation, `{"enable": true, "nodeConfigs": [{"nodeSelector": {"matchLabels": {"a": "b"}}}], "extensions": {"x": [1]}}`, `{"enable": true}`)
	f.Add(keyQOS, `{"clusterStrategy": {"beClass": {"blkioQOS": {"blocks": [{}, {"name": "a"}]}, "networkQOS": {"ingressLimit": "5M"}}}}`, "{")
	f.Add(keyHostApps, `{"applications": [{"name": "a", "cgroupPath": {"base": "Kubepods"}}]}`, "")
	f.Add(keyNormalization, `{"ratioModel": {"a.b[c": {"baseRatio": 1e3}}}`, "[[[[")
	f.Add(keyAmplification, "{\"resourceAmplificationRatio\":\n{\"\": -1}}", "null")
	f.Fuzz(func(t *testing.T, key, text, note string) {
		c, faults := ParseConfigMap(map[string]string{key: text, keyBurst: `{"clusterStrategy": {"policy": "auto"}}`})
		n, more := c.Node(map[string]string{"node.koordinator.sh/cpu-reclaim-ratio": note}, map[string]string{annotationColocation: note, annotationReservation: note})
		for _, f := range slices.Concat(faults, more) {
			if strings.ContainsAny(f.String(), "\n\r") || f.Problem == "" || f.Field == "" {
				t.Errorf("fault %+v: want one line that says something", f)
			}
		}
		for _, notice := range slices.Concat(c.Notices(), n.Notices) {
			if strings.ContainsAny(notice, "\n\r") {
				t.Errorf("notice %q: want one line", notice)
			}
		}
		if key != keyBurst && n.Policy.Burst.Policy != burst.Both {
			t.Error("the other key is not in force")
		}
		again, faults := ParseConfigMap(c.Data())
		if len(faults) > 0 {
			t.Errorf("what is in force, %q, has faults: %v", c.Data(), faults)
		}
		if p, _ := again.Node(nil, nil); !reflect.DeepEqual(p.Policy, first(c.Node(nil, nil)).Policy) {
			t.Errorf("what is in force, %q, means something else", c.Data())
		}
	})
}

func first[T, U any](v T, _ U) T { return v }
