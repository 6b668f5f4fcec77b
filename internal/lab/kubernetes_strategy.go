package lab

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"tenon.sh/tenon/internal/lab/report"
)

const (
	// strategyName is the name of the lab's entries in Tenon's ConfigMap.
	strategyName = "tenon-lab"
	// strategyLabel marks the tested node: strategies apply to no other node.
	strategyLabel = "tenon.sh/lab"
)

// A strategy is the configuration of the tested node during a run: an entry for
// each key of Tenon's ConfigMap.
type strategy map[string]object

// entriesOf names the list of a key; its first entry that matches a node
// applies.
func entriesOf(key string) string {
	if key == "colocation-config" {
		return "nodeConfigs"
	}
	return "nodeStrategies"
}

// strategyOf returns a mode's configuration of Tenon: all off where Tenon is
// compared with, and everything else as the cluster has it.
func strategyOf(t report.ModeSpec) strategy {
	off := object{"enable": false}
	classes := func(qos object) object {
		entry := object{}
		for _, class := range []string{"lsrClass", "lsClass", "beClass"} {
			entry[class] = qos
		}
		return entry
	}
	s := strategy{
		// The amount of batch resources is not under test: it must only be
		// enough to fill the tested CPUs.
		"colocation-config":         {"enable": true, "cpuReclaimThresholdPercent": 1000},
		"resource-threshold-config": off,
		"resource-qos-config":       classes(object{"cpuQOS": off, "memoryQOS": off, "resctrlQOS": off, "blkioQOS": off}),
		"cpu-burst-config":          {"policy": "none"},
	}
	if t.Isolates() {
		s["resource-qos-config"] = classes(object{"cpuQOS": object{"enable": true}})
	}
	if t.Suppress {
		s["resource-threshold-config"] = object{"enable": true, "cpuSuppressThresholdPercent": watermark, "cpuSuppressPolicy": "cfsQuota"}
	}
	return s
}

// withEntry returns the text of a key of the ConfigMap with the lab's entry
// first, or without it if entry is nil. The rest of the text stays.
func withEntry(key, text string, entry object) (string, error) {
	config := object{}
	if strings.TrimSpace(text) != "" {
		if err := json.Unmarshal([]byte(text), &config); err != nil {
			return "", fmt.Errorf("%s of Tenon's ConfigMap: %w", key, err)
		}
	}
	field := entriesOf(key)
	entries, _ := config[field].([]any)
	found := len(entries)
	entries = slices.DeleteFunc(entries, func(e any) bool {
		o, _ := e.(object)
		return o["name"] == strategyName
	})
	if entry != nil {
		own := object{"name": strategyName, "nodeSelector": object{"matchLabels": object{strategyLabel: strategyName}}}
		for k, v := range entry {
			own[k] = v
		}
		entries = append([]any{own}, entries...)
	}
	if entry == nil && found == len(entries) {
		return text, nil // as its owner wrote it
	}
	if len(entries) > 0 {
		config[field] = entries
	} else {
		delete(config, field)
	}
	if len(config) == 0 {
		return "", nil
	}
	out, err := json.Marshal(config)
	return string(out), err
}

// apply makes the strategy hold on the tested node; nil takes the lab's entries
// away.
func (b *clusterEnvironment) apply(ctx context.Context, s strategy) error {
	namespace, name, _ := strings.Cut(b.cluster.ConfigMap, "/")
	var now struct {
		Data map[string]string `json:"data"`
	}
	if err := b.kubectl.get(ctx, &now, "configmap", "-n", namespace, name); err != nil {
		return fmt.Errorf("read Tenon's configuration (--cluster-config): %w", err)
	}
	changed := map[string]any{}
	for key := range strategyOf(report.ModeSpec{}) {
		before, exists := now.Data[key]
		text, err := withEntry(key, before, s[key])
		switch {
		case err != nil:
			return err
		case text == "" && exists:
			changed[key] = nil
		case text != before:
			changed[key] = text
		}
	}
	if len(changed) == 0 {
		return nil
	}
	patch, err := json.Marshal(object{"data": changed})
	if err != nil {
		return err
	}
	_, err = b.kubectl.do(ctx, "", "patch", "configmap", "-n", namespace, name, "--type=merge", "-p", string(patch))
	return err
}
