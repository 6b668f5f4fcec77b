package config

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// FuzzParse checks that no text makes the parser panic or loop. The result must
// be either faults or a configuration. If a parsed file is written and parsed
// again, the result must be the same.
func FuzzParse(f *testing.F) {
	f.Add(Default())
	f.Add([]byte(header + "resource-threshold-config: '{\"clusterStrategy\": {\"enable\": true}}'\n"))
	f.Add([]byte(header + "resource-qos-config: {beClass: {networkQOS: {ingressLimit: 50M}, blkioQOS: {blocks: [{name: a}]}}}\n"))
	f.Add([]byte(header + "- {name: web, class: LS, units: [a], priority: -1, objective: {runQueueDelay: 2ms}, requests: {cpu: 500m}}\n"))
	f.Add([]byte(header + "- {name: web, class: LS, units: [a], objective: {p50: 1ms, p99.9: 1s, source: metrics, port: 80, path: /a, family: a, familyUnit: ms, labels: {b: c}}}\n"))
	f.Add([]byte(header + "reserved: {cpu: 0.5, memory: 1Gi}\ncolocation-config: {enable: true, peakPrediction: {enable: true}}\n"))
	f.Add([]byte(header + "colocation-config: {metricAggregatePolicy: {durations: [5m]}, resourceDiffThreshold: 0.5, extensions: {a: [1]}}\n"))
	files, err := filepath.Glob("testdata/wrong/*.yaml")
	if err != nil {
		f.Fatal(err)
	}
	for _, path := range files {
		data, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, faults := Parse(data)
		for _, fault := range faults {
			if strings.ContainsAny(fault.String(), "\n\r") || fault.Problem == "" || fault.Line < 0 {
				t.Errorf("fault %+v: want one line that says something", fault)
			}
		}
		if len(faults) > 0 {
			if !reflect.DeepEqual(c, Config{}) {
				t.Errorf("faults %v and the configuration %+v", faults, c)
			}
			return
		}
		once, _ := read(data)
		text := written(t, once)
		again, faults := Parse(text)
		if len(faults) > 0 || !reflect.DeepEqual(c, again) {
			t.Errorf("\n%s\nwas read as %+v; written as\n%s\nit is read as %+v with the faults %v", data, c, text, again, faults)
		}
	})
}

// objectiveKeys returns the keys of an objective that are set.
func objectiveKeys(o Objective) map[string]any {
	keys := map[string]any{}
	times := map[string]node.Maybe[time.Duration]{"runQueueDelay": o.RunQueueDelay}
	for i, target := range o.targets() {
		times[node.Percentiles[i].Name] = target
	}
	for name, v := range times {
		if d, set := v.Value(); set {
			keys[name] = d.String()
		}
	}
	for name, v := range map[string]node.Maybe[string]{"source": o.Source, "path": o.Path, "family": o.Family, "familyUnit": o.FamilyUnit} {
		if text, set := v.Value(); set {
			keys[name] = text
		}
	}
	if port, set := o.Port.Value(); set {
		keys["port"] = port
	}
	if len(o.Labels) > 0 {
		keys["labels"] = o.Labels
	}
	return keys
}

// written returns f as JSON in ASCII, which is also YAML.
func written(t *testing.T, f file) []byte {
	t.Helper()
	strategies, err := json.Marshal(f.Strategies)
	if err != nil {
		t.Fatal(err)
	}
	sections := map[string]json.RawMessage{}
	if err := json.Unmarshal(strategies, &sections); err != nil {
		t.Fatal(err)
	}
	var rules []map[string]any
	for _, r := range f.Rules {
		again := map[string]any{
			"name": valueOf(r.Name), "class": valueOf(r.Class), "cgroups": r.Cgroups, "units": r.Units, "containers": r.Containers,
			"requests": amounts(r.Requests.CPU, r.Requests.Memory), "limits": amounts(r.Limits.CPU, r.Limits.Memory),
		}
		if priority, given := r.Priority.Value(); given {
			again["priority"] = priority
		}
		if o := objectiveKeys(r.Objective); len(o) > 0 {
			again["objective"] = o
		}
		rules = append(rules, again)
	}
	all := map[string]any{"apiVersion": "tenon.sh/v1alpha1", "kind": "NodeConfig", "rules": rules, "period": f.Period.Or(defaultPeriod).String()}
	if list, given := f.CPUs.Value(); given {
		all["cpus"] = list
	}
	if len(f.ContainerSockets) > 0 {
		all["containerSockets"] = f.ContainerSockets
	}
	if f.Reserved != (reserved{}) {
		all["reserved"] = amounts(f.Reserved.CPU, f.Reserved.Memory)
	}
	for name, section := range sections {
		all[name] = section
	}
	text, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	var ascii strings.Builder
	for _, r := range string(text) {
		if r < 0x7f {
			ascii.WriteRune(r)
		} else {
			fmt.Fprintf(&ascii, `\U%08x`, r)
		}
	}
	return []byte(ascii.String())
}

// amounts returns the requests or limits of a rule as the file has them.
func amounts(cpu node.Maybe[unit.MilliCPU], memory node.Maybe[unit.Bytes]) map[string]string {
	m := map[string]string{}
	if cpu.Known() {
		m["cpu"] = valueOf(cpu).String()
	}
	if memory.Known() {
		m["memory"] = valueOf(memory).String()
	}
	return m
}
