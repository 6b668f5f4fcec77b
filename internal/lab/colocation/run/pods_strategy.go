package run

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"tenon.sh/tenon/internal/lab/report"
)

const (
	// strategyName is the name of the entries that the lab adds to Tenon's
	// ConfigMap.
	strategyName = "tenon-lab"
	// strategyLabel marks the tested node. The lab's entries apply to no other
	// node.
	strategyLabel = "tenon.sh/lab"
)

// A strategy is the configuration of the tested node during a run. It has an
// entry for each key of Tenon's ConfigMap.
type strategy map[string]object

// entriesOf returns the field that lists the entries for single nodes, for a key
// of Tenon's ConfigMap. If several entries select a node, the first one applies.
func entriesOf(key string) string {
	if key == "colocation-config" {
		return "nodeConfigs"
	}
	return "nodeStrategies"
}

// strategyOf returns the configuration of Tenon in a mode. In a mode without
// Tenon, all strategies are disabled. All other settings are the same in each
// mode. amounts says how much batch-cpu the node offers; nil: as much as the batch work
// may want.
func strategyOf(t report.ModeSpec, amounts object) strategy {
	off := object{"enable": false}
	classes := func(qos object) object {
		entry := object{}
		for _, class := range []string{"lsrClass", "lsClass", "beClass"} {
			entry[class] = qos
		}
		return entry
	}
	s := strategy{
		// The amount of batch resources is not tested. It must only be large enough
		// for the batch work to fill the tested CPUs.
		"colocation-config":         {"enable": true, "cpuReclaimThresholdPercent": 1000},
		"resource-threshold-config": off,
		"resource-qos-config":       classes(object{"cpuQOS": off, "memoryQOS": off, "resctrlQOS": off, "blkioQOS": off}),
		"cpu-burst-config":          {"policy": "none"},
	}
	if amounts != nil {
		s["colocation-config"] = amounts
	}
	if t.AllFeatures {
		s.layAllFeatures(t)
		s["colocation-config"] = defaultAmounts()
		return s
	}
	if t.Isolates() {
		s["resource-qos-config"] = classes(object{"cpuQOS": object{"enable": true}})
	}
	if t.Suppress {
		s["resource-threshold-config"] = object{"enable": true, "cpuSuppressThresholdPercent": Watermark, "cpuSuppressPolicy": "cfsQuota"}
	}
	return s
}

// withEntry returns the text of a ConfigMap key with the lab's entry in front
// of the other entries. If entry is nil, it removes the lab's entry. Everything
// else stays the same.
func withEntry(key, text string, entry object) (string, error) {
	config := object{}
	if strings.TrimSpace(text) != "" {
		if err := json.Unmarshal([]byte(text), &config); err != nil {
			return "", fmt.Errorf("%s of Tenon's ConfigMap: %w", key, err)
		}
	}
	field := entriesOf(key)
	entries, isList := config[field].([]any)
	if !isList && config[field] != nil {
		return "", fmt.Errorf("%s of Tenon's ConfigMap: %s: want a list", key, field)
	}
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
		return text, nil // unchanged
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

// apply makes the strategy apply to the tested node. If the strategy is nil, it
// removes the lab's entries.
func (b *pods) apply(ctx context.Context, s strategy) error {
	namespace, name, _ := strings.Cut(b.Pods.ConfigMap, "/")
	var now struct {
		Data map[string]string `json:"data"`
	}
	if err := b.space.Get(ctx, &now, "configmap", "-n", namespace, name); err != nil {
		return fmt.Errorf("read Tenon's configuration (--config-map): %w", err)
	}
	changed := map[string]any{}
	for key := range strategyOf(report.ModeSpec{}, nil) {
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
	_, err = b.space.Do(ctx, "", "patch", "configmap", "-n", namespace, name, "--type=merge", "-p", string(patch))
	return err
}
