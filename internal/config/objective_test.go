package config

import (
	"strings"
	"testing"
	"time"

	"tenon.sh/tenon/internal/model/node"
)

// TestAnObjectiveHasTheSameFaultsEverywhere writes objectives into an annotation,
// the ConfigMap and the file of a node. Each fault must name its field and the
// accepted values.
func TestAnObjectiveHasTheSameFaultsEverywhere(t *testing.T) {
	for text, want := range map[string]string{
		`{"runQueueDelay": "2ms"}`:                         "",
		`{"runQueueDelay": "10us"}`:                        "",
		`{"runQueueDelay": "1s"}`:                          "",
		`{"runQueueDelay": "9us"}`:                         "runQueueDelay: 9µs: want a duration from 10µs to 1s",
		`{"runQueueDelay": "1001ms"}`:                      "runQueueDelay: 1.001s: want a duration from 10µs to 1s",
		`{"runQueueDelay": "-2ms"}`:                        "runQueueDelay: -2ms: want a duration from 10µs to 1s",
		`{"runQueueDelay": 2}`:                             "runQueueDelay: 2: want a duration from 10µs to 1s, such as 1s or 500ms",
		`{"runQueueDelay": "2"}`:                           `runQueueDelay: "2": want a duration from 10µs to 1s, such as 1s or 500ms`,
		`{"runQueueDelay": ["2ms"]}`:                       "runQueueDelay: a list: want a duration from 10µs to 1s, such as 1s or 500ms",
		`{"runqueuedelay": "2ms"}`:                         "runqueuedelay: unknown key: did you mean runQueueDelay?",
		`{"p99": "5ms"}`:                                   "p99: unknown key: want runQueueDelay",
		`{"runQueueDelay": "2ms", "period": "1s"}`:         "period: unknown key: want runQueueDelay",
		`{"runQueueDelay": "2ms", "runQueueDelay": "3ms"}`: "runQueueDelay: this key occurs twice",
	} {
		check := func(where string, got []Fault) {
			t.Helper()
			if (len(got) == 0) != (want == "") || want != "" && !strings.HasSuffix(got[0].String(), want) {
				t.Errorf("%s in %s: faults %v, want %q", text, where, got, want)
			}
		}
		_, found := ReadObjective(text, node.LS)
		check("an annotation", found)
		_, found = ParseConfigMap(map[string]string{keyObjective: `{"objectives": [{"namespaces": ["shop"], "objective": ` + text + `}]}`})
		check("the ConfigMap", found)
	}
	for text, want := range map[string]string{
		`"2ms"`:                    `"2ms": want keys and values, such as runQueueDelay: …`,
		`p99 <= 5ms`:               "not JSON: invalid character 'p' looking for beginning of value",
		`{"runQueueDelay": "2ms"`:  "not JSON: unexpected end of JSON input",
		`[{"runQueueDelay": "1"}]`: "a list: want keys and values, such as runQueueDelay: …",
	} {
		if _, found := ReadObjective(text, node.LS); len(found) != 1 || found[0].String() != want {
			t.Errorf("%s: %v, want %q", text, found, want)
		}
	}
	for _, class := range []node.Class{node.BE, node.System} {
		o, found := ReadObjective(`{"runQueueDelay": "2ms"}`, class)
		if want := "runQueueDelay: 2ms: want it for LSE, LSR or LS only: class " + string(class) + " has no latency objective"; o.RunQueueDelay.Known() || len(found) != 1 || found[0].String() != want {
			t.Errorf("%s: %+v, %v; want %q", class, o, found, want)
		}
	}
}

// TestObjectivesBySelector checks which pods the entries of objective-config
// select. The first entry that selects a pod counts.
func TestObjectivesBySelector(t *testing.T) {
	c := cluster(t, map[string]string{keyObjective: `{"objectives": [
		{"name": "checkout", "namespaces": ["shop", "shop-test"], "podSelector": {"matchLabels": {"app": "checkout"}}, "objective": {"runQueueDelay": "2ms"}},
		{"namespaces": ["shop"], "objective": {"runQueueDelay": "20ms"}},
		{"podSelector": {"matchExpressions": [{"key": "tier", "operator": "In", "values": ["front", "edge"]}]}, "objective": {"runQueueDelay": "5ms"}},
		{"podSelector": {"matchLabels": {"app.kubernetes.io/Name_1": "v1.2_A-b", "empty": ""}}, "objective": {"runQueueDelay": "7ms"}}],
		"nodeConfigs": [{"nodeSelector": {"matchLabels": {"size": "big"}}, "objectives": [{"namespaces": ["shop"], "objective": {"runQueueDelay": "1ms"}}]}]}`})
	if len(c.Notices()) > 0 {
		t.Errorf("notices %q", c.Notices())
	}
	for _, tc := range []struct {
		namespace string
		labels    map[string]string
		want      time.Duration
	}{
		{"shop", map[string]string{"app": "checkout", "tier": "front"}, 2 * time.Millisecond},
		{"shop-test", map[string]string{"app": "checkout"}, 2 * time.Millisecond},
		{"shop", map[string]string{"app": "cart", "tier": "front"}, 20 * time.Millisecond},
		{"shop", nil, 20 * time.Millisecond},
		{"web", map[string]string{"tier": "edge"}, 5 * time.Millisecond},
		{"web", map[string]string{"app": "checkout"}, 0},
		{"web", map[string]string{"app.kubernetes.io/Name_1": "v1.2_A-b", "empty": ""}, 7 * time.Millisecond},
	} {
		if got := nodeConfig(t, c, nil, nil).Objectives.Of(tc.namespace, tc.labels).RunQueueDelay.Or(0); got != tc.want {
			t.Errorf("%s %v: %v, want %v", tc.namespace, tc.labels, got, tc.want)
		}
	}
	if got := nodeConfig(t, c, big, nil).Objectives.Of("shop", nil).RunQueueDelay.Or(0); got != time.Millisecond {
		t.Errorf("on a big node: %v, want the 1 ms of its entry", got)
	}
}

// TestFaultsOfObjectivesBySelector checks that no mistake of the author gives pods
// an objective that were not meant. A key with a fault keeps its content.
func TestFaultsOfObjectivesBySelector(t *testing.T) {
	last := cluster(t, map[string]string{keyObjective: `{"objectives": [{"namespaces": ["shop"], "objective": {"runQueueDelay": "2ms"}}]}`})
	const o = `"objective": {"runQueueDelay": "2ms"}`
	for text, want := range map[string]string{
		`{"objectives": [{` + o + `}]}`:                                                                                                "objective-config.objectives[0]: it selects every pod of the cluster: want namespaces, or a podSelector with a label",
		`{"objectives": [{"namespaces": [], "podSelector": {}, ` + o + `}]}`:                                                           "objective-config.objectives[0]: it selects every pod of the cluster: want namespaces, or a podSelector with a label",
		`{"objectives": [{"namespaces": ["shop"], "podSelektor": {"a": 1}, ` + o + `}]}`:                                               "objective-config.objectives[0].podSelektor: unknown key: did you mean podSelector?",
		`{"objectives": [{"namespaces": ["shop"], "namespaceSelector": {}, ` + o + `}]}`:                                               "objective-config.objectives[0].namespaceSelector: unknown key: want name, namespaces, podSelector, objective",
		`{"objectives": [{"namespaces": [""], ` + o + `}]}`:                                                                            `objective-config.objectives[0].namespaces[0]: "": want the name of a namespace: 1 to 63 lower-case letters, digits and -, with a letter or digit at both ends`,
		`{"objectives": [{"namespaces": ["*"], ` + o + `}]}`:                                                                           `objective-config.objectives[0].namespaces[0]: "*": want the name of a namespace: 1 to 63 lower-case letters, digits and -, with a letter or digit at both ends`,
		`{"objectives": [{"namespaces": ["Shop"], ` + o + `}]}`:                                                                        `objective-config.objectives[0].namespaces[0]: "Shop": want the name of a namespace: 1 to 63 lower-case letters, digits and -, with a letter or digit at both ends`,
		`{"objectives": [{"namespaces": ["web", "a.b"], ` + o + `}]}`:                                                                  `objective-config.objectives[0].namespaces[1]: "a.b": want the name of a namespace: 1 to 63 lower-case letters, digits and -, with a letter or digit at both ends`,
		`{"objectives": [{"namespaces": ["-shop"], ` + o + `}]}`:                                                                       `objective-config.objectives[0].namespaces[0]: "-shop": want the name of a namespace: 1 to 63 lower-case letters, digits and -, with a letter or digit at both ends`,
		`{"objectives": [{"namespaces": ["` + strings.Repeat("a", 64) + `"], ` + o + `}]}`:                                             `objective-config.objectives[0].namespaces[0]: "` + strings.Repeat("a", 64) + `": want the name of a namespace: 1 to 63 lower-case letters, digits and -, with a letter or digit at both ends`,
		`{"objectives": [{"podSelector": {"matchLabels": {"a b": "c d"}}, ` + o + `}]}`:                                                `objective-config.objectives[0].podSelector.matchLabels["a b"]: "a b": want the key of a label: 1 to 63 letters, digits, -, _ and ., with a letter or digit at both ends, after an optional DNS name and /`,
		`{"objectives": [{"podSelector": {"matchLabels": {"app": "c d"}}, ` + o + `}]}`:                                                `objective-config.objectives[0].podSelector.matchLabels[app]: "c d": want the value of a label: at most 63 letters, digits, -, _ and ., with a letter or digit at both ends`,
		`{"objectives": [{"podSelector": {"matchLabels": {"a/b/c": "d"}}, ` + o + `}]}`:                                                `objective-config.objectives[0].podSelector.matchLabels[a/b/c]: "a/b/c": want the key of a label: 1 to 63 letters, digits, -, _ and ., with a letter or digit at both ends, after an optional DNS name and /`,
		`{"objectives": [{"podSelector": {"matchLabels": {"A.io/b": "d"}}, ` + o + `}]}`:                                               `objective-config.objectives[0].podSelector.matchLabels[A.io/b]: "A.io/b": want the key of a label: 1 to 63 letters, digits, -, _ and ., with a letter or digit at both ends, after an optional DNS name and /`,
		`{"objectives": [{"podSelector": {"matchExpressions": [{"key": "a*", "operator": "NotIn", "values": ["b"]}]}, ` + o + `}]}`:    `objective-config.objectives[0].podSelector.matchExpressions[0].key: "a*": want the key of a label: 1 to 63 letters, digits, -, _ and ., with a letter or digit at both ends, after an optional DNS name and /`,
		`{"objectives": [{"podSelector": {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b", "c d"]}]}, ` + o + `}]}`: `objective-config.objectives[0].podSelector.matchExpressions[0].values[1]: "c d": want the value of a label: at most 63 letters, digits, -, _ and ., with a letter or digit at both ends`,
		`{"objectives": [{"namespaces": ["shop"]}]}`:                                                                                   "objective-config.objectives[0].objective: missing: want runQueueDelay",
		`{"objectives": [{"namespaces": ["shop"], "objective": {}}]}`:                                                                  "objective-config.objectives[0].objective: missing: want runQueueDelay",
		`{"objectives": [{"podSelector": {"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1"]}]}, ` + o + `}]}`:        `objective-config.objectives[0].podSelector.matchExpressions[0].operator: "Gt": want one of In, NotIn, Exists, DoesNotExist`,
		`{"objectives": [{"podSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]}, ` + o + `}]}`:                         "objective-config.objectives[0].podSelector.matchExpressions[0].values: missing: want the values of the label",
	} {
		c, faults := ParseConfigMapOver(last, map[string]string{keyObjective: text})
		if len(faults) != 1 || faults[0].String() != want {
			t.Errorf("%s\n%v, want\n%s", text, faults, want)
		}
		if got := nodeConfig(t, c, nil, nil).Objectives.Of("shop", nil).RunQueueDelay.Or(0); got != 2*time.Millisecond {
			t.Errorf("%s: the objective is %v, want that of before", text, got)
		}
	}
}
