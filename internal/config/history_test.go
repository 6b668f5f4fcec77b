package config

import (
	"slices"
	"testing"
)

func TestAHistoryHasADirectoryAndASize(t *testing.T) {
	const head = "apiVersion: tenon.sh/v1alpha1\nkind: NodeConfig\n"
	for text, want := range map[string]History{
		"": {Size: 32 << 20},
		"history: {directory: /var/lib/tenon/history}\n": {"/var/lib/tenon/history", 32 << 20},
		"history: {directory: /data, size: 1Mi}\n":       {"/data", 1 << 20},
		"history: {directory: /data, size: 1Gi}\n":       {"/data", 1 << 30},
	} {
		c, faults := Parse([]byte(head + text))
		if len(faults) > 0 || c.History != want {
			t.Errorf("%q: %+v, %v", text, c.History, faults)
		}
	}
	for text, field := range map[string]string{
		"history: {directory: data}\n":                "history.directory",
		"history: {directory: /}\n":                   "history.directory",
		"history: {directory: /data, size: 1023Ki}\n": "history.size",
		"history: {directory: /data, size: 2Gi}\n":    "history.size",
	} {
		_, faults := Parse([]byte(head + text))
		if !slices.ContainsFunc(faults, func(f Fault) bool { return f.Field == field }) {
			t.Errorf("%q: %v, want a fault of %s", text, faults, field)
		}
	}
}
