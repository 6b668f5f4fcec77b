package config

import (
	"slices"
	"strings"
	"testing"
)

// TestNumbersThatCannotBeMeantAreNoticed checks numbers that Koordinator takes
// and that count, but that no author can mean.
func TestNumbersThatCannotBeMeantAreNoticed(t *testing.T) {
	const on = `{"enable": true, `
	for name, c := range map[string]struct {
		data                map[string]string
		labels, annotations map[string]string
		cluster, node       string // the notice for the author, and that of the node; empty: none
	}{
		"CPU of more than the node": {map[string]string{keyColocation: on + `"cpuReclaimThresholdPercent": 250}`}, nil, nil,
			"colocation-config.cpuReclaimThresholdPercent: 250 counts, but is probably not meant: want a whole number from 0 to 100",
			"colocation-config.cpuReclaimThresholdPercent: 250 counts, but is probably not meant: want a whole number from 0 to 100"},
		"memory of more than the node": {map[string]string{keyColocation: on + `"memoryReclaimThresholdPercent": 101}`}, nil, nil,
			"memoryReclaimThresholdPercent: 101 counts", "memoryReclaimThresholdPercent: 101 counts"},
		"a bound of more than the node": {map[string]string{keyColocation: on + `"batchCPUThresholdPercent": 6000}`}, nil, nil,
			"batchCPUThresholdPercent: 6000 counts", "batchCPUThresholdPercent: 6000 counts"},
		"a memory bound of more than the node": {map[string]string{keyColocation: on + `"batchMemoryThresholdPercent": 200}`}, nil, nil,
			"batchMemoryThresholdPercent: 200 counts", "batchMemoryThresholdPercent: 200 counts"},
		"a burst of ten thousand times the limit": {map[string]string{keyBurst: `{"clusterStrategy": {"policy": "auto", "cfsQuotaBurstPercent": 1000000}}`}, nil, nil,
			"cpu-burst-config.clusterStrategy.cfsQuotaBurstPercent: 1000000 counts", "cfsQuotaBurstPercent: 1000000 counts"},
		"an entry for other nodes": {map[string]string{keyColocation: "{\"enable\": true, \"nodeConfigs\": [\n{\"nodeSelector\": {\"matchLabels\": {\"a\": \"b\"}}, \"cpuReclaimThresholdPercent\": 250}]}"}, nil, nil,
			"line 2: colocation-config.nodeConfigs[0].cpuReclaimThresholdPercent: 250 counts", ""},
		"an entry for this node": {map[string]string{keyColocation: on + `"nodeConfigs": [{"nodeSelector": {"matchLabels": {"a": "b"}}, "cpuReclaimThresholdPercent": 250}]}`}, map[string]string{"a": "b"}, nil,
			"colocation-config.nodeConfigs[0].cpuReclaimThresholdPercent: 250 counts", "cpuReclaimThresholdPercent: 250 counts"},
		"the annotation of the node": {map[string]string{keyColocation: `{"enable": true}`}, nil, map[string]string{annotationColocation: `{"cpuReclaimThresholdPercent": 170}`},
			"", "cpuReclaimThresholdPercent: 170 counts"},
		"a percentage in a label for a ratio": {map[string]string{keyColocation: `{"enable": true}`}, map[string]string{"node.koordinator.sh/cpu-reclaim-ratio": "70"}, nil,
			"", `label node.koordinator.sh/cpu-reclaim-ratio: "70" counts as 7000 %, but is probably not meant: want a number from 0 to 1, such as 0.7 for 70 %`},
		"all of the node":        {map[string]string{keyColocation: on + `"cpuReclaimThresholdPercent": 100, "batchCPUThresholdPercent": 0}`}, map[string]string{"node.koordinator.sh/memory-reclaim-ratio": "1"}, nil, "", ""},
		"colocation that is off": {map[string]string{keyColocation: `{"enable": false, "cpuReclaimThresholdPercent": 250}`}, map[string]string{"node.koordinator.sh/cpu-reclaim-ratio": "70"}, nil, "", ""},
	} {
		found := cluster(t, c.data)
		notices, node := found.Notices(), nodeConfig(t, found, c.labels, c.annotations).Unlikely
		if c.cluster == "" && len(notices) > 0 || !strings.Contains(strings.Join(notices, "\n"), c.cluster) || len(notices) > 1 {
			t.Errorf("%s: the author is warned of %q, want %q", name, notices, c.cluster)
		}
		if c.node == "" && len(node) > 0 || !strings.Contains(strings.Join(node, "\n"), c.node) || len(node) > 1 {
			t.Errorf("%s: the node says %q, want %q", name, node, c.node)
		}
	}
	file := mustParse(t, header+"colocation-config: {enable: true, cpuReclaimThresholdPercent: 250}\n")
	if !slices.ContainsFunc(file.Notices, func(n string) bool { return strings.Contains(n, "250 counts") }) {
		t.Errorf("the file of a node: %q", file.Notices)
	}
	if p := nodeConfig(t, cluster(t, map[string]string{keyColocation: on + `"cpuReclaimThresholdPercent": 250}`}), nil, nil).Policy; p.Overcommit.CPU.ThresholdPercent != 250 {
		t.Errorf("the value does not count: %+v", p.Overcommit.CPU)
	}
}

// TestAnEmptyTextUnsetsWholeParts checks empty texts in place of mappings and
// lists, and as the text of a key. Templates write them for unset values.
func TestAnEmptyTextUnsetsWholeParts(t *testing.T) {
	for name, data := range map[string]map[string]string{
		"the text of each key": {keyThreshold: "", keyQOS: "", keyBurst: "", keyColocation: "", keySystem: "", keyHostApps: "", keyNormalization: "", keyAmplification: ""},
		"the cluster's part":   {keyBurst: `{"clusterStrategy": "", "nodeStrategies": ""}`},
		"a mapping":            {keyQOS: `{"clusterStrategy": {"beClass": "", "lsClass": {"cpuQOS": ""}}}`},
		"a list":               {keyQOS: `{"clusterStrategy": {"beClass": {"blkioQOS": {"enable": true, "blocks": ""}}}}`},
		"entries":              {keyColocation: `{"nodeConfigs": ""}`},
	} {
		c, faults := ParseConfigMap(data)
		if len(faults) > 0 || len(c.Notices()) > 0 {
			t.Errorf("%s: faults %v, notices %q", name, faults, c.Notices())
		}
	}
	c, faults := ParseConfigMap(map[string]string{keyBurst: `{"nodeStrategies": [{"nodeSelector": "", "policy": "auto"}]}`})
	if len(faults) > 0 || len(c.Notices()) != 1 || !strings.Contains(c.Notices()[0], "it has no nodeSelector, so it applies to no node") {
		t.Errorf("a selector: faults %v, notices %q", faults, c.Notices())
	}
}

// TestAKeyThatIsGivenTwiceIsSaidSo checks keys that occur again. The words must
// not suggest the key itself.
func TestAKeyThatIsGivenTwiceIsSaidSo(t *testing.T) {
	for text, want := range map[string]string{
		`{"clusterStrategy": {"enable": true, "memoryEvictThresholdPercent": 0}, "clusterStrategy": {"enable": false}}`:                           "resource-threshold-config.clusterStrategy: given twice: the first one counts",
		"{\"clusterStrategy\": {\"enable\": true, \"memoryEvictThresholdPercent\": 0},\n\"clusterStrategy\": {}}":                                 "line 2: resource-threshold-config.clusterStrategy: given twice, in lines 1 and 2: the first one counts",
		"{\"nodeStrategies\": [],\n\n\"nodeStrategies\": [],\n\"clusterStrategy\": {\"enable\": true, \"memoryEvictThresholdPercent\": 0}}":       "line 3: resource-threshold-config.nodeStrategies: given twice, in lines 1 and 3: the first one counts",
		"{\"clusterStrategy\": {\"enable\": true, \"memoryEvictThresholdPercent\": 0},\n\"ClusterStrategy\": {\"enable\": false}, \"other\": {}}": "line 2: resource-threshold-config.ClusterStrategy: unknown key: did you mean clusterStrategy?",
	} {
		c := cluster(t, map[string]string{keyThreshold: text})
		if !slices.Contains(c.Notices(), want) || !nodeConfig(t, c, nil, nil).Policy.Suppress.Enable {
			t.Errorf("%s\n got %q\nwant %q", text, c.Notices(), want)
		}
	}
	_, faults := ParseConfigMap(map[string]string{keyColocation: `{"enable": true, "enable": false}`})
	if len(faults) != 1 || faults[0].String() != "colocation-config.enable: this key occurs twice" {
		t.Errorf("a setting: %v", faults)
	}
	c := cluster(t, map[string]string{keyColocation: `{"enable": true, "nodeConfigs": [], "nodeConfigs": []}`})
	if len(c.Notices()) != 1 || c.Notices()[0] != "colocation-config.nodeConfigs: given twice: the first one counts" {
		t.Errorf("entries: %q", c.Notices())
	}
	_, faults = Parse([]byte(header + "cpu-burst-config:\n  clusterStrategy: {policy: auto}\n  clusterStrategy: {policy: none}\n"))
	if len(faults) != 1 || !strings.Contains(faults[0].String(), "cpu-burst-config.clusterStrategy: this key occurs twice, first in line") {
		t.Errorf("the file of a node: %v", faults)
	}
}
