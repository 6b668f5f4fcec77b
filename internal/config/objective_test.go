package config

import (
	"strings"
	"testing"
	"time"

	"tenon.sh/tenon/internal/model/node"
)

const words = "runQueueDelay, p50, p75, p90, p95, p99, p99.9, source, port, path, family, familyUnit, labels"

// scraped returns an objective for requests with these keys.
func scraped(keys string) string { return `{"source": "metrics", "port": 8080, ` + keys + `}` }

// TestAnObjectiveHasTheSameFaultsEverywhere writes objectives into an annotation,
// the ConfigMap and the file of a node. Each fault must name its field and the
// accepted values.
func TestAnObjectiveHasTheSameFaultsEverywhere(t *testing.T) {
	for text, want := range map[string]string{
		`{"runQueueDelay": "2ms"}`:                                                           "",
		`{"runQueueDelay": "10us"}`:                                                          "",
		`{"runQueueDelay": "1s"}`:                                                            "",
		`{"runQueueDelay": "9us"}`:                                                           "runQueueDelay: 9µs: want a duration from 10µs to 1s",
		`{"runQueueDelay": "1001ms"}`:                                                        "runQueueDelay: 1.001s: want a duration from 10µs to 1s",
		`{"runQueueDelay": "-2ms"}`:                                                          "runQueueDelay: -2ms: want a duration from 10µs to 1s",
		`{"runQueueDelay": 2}`:                                                               "runQueueDelay: 2: want a duration from 10µs to 1s, such as 1s or 500ms",
		`{"runQueueDelay": "2"}`:                                                             `runQueueDelay: "2": want a duration from 10µs to 1s, such as 1s or 500ms`,
		`{"runQueueDelay": ["2ms"]}`:                                                         "runQueueDelay: a list: want a duration from 10µs to 1s, such as 1s or 500ms",
		`{"runqueuedelay": "2ms"}`:                                                           "runqueuedelay: unknown key: did you mean runQueueDelay?",
		`{"runQueueDelay": "2ms", "interval": "1s"}`:                                         "interval: unknown key: want " + words,
		`{"p98": "5ms"}`:                                                                     "p98: unknown key: did you mean p90?",
		`{"p99": "5ms", "source": "metrics", "port": 1}`:                                     "",
		`{"p99": "5ms", "source": "metrics"}`:                                                "port: missing: want a whole number from 1 to 65535",
		`{"p99": "5ms", "port": 8080}`:                                                       "source: missing: want one of metrics, socket, query",
		`{"source": "metrics", "port": 1}`:                                                   "p99: missing: want a time for one of p50, p75, p90, p95, p99, p99.9",
		`{"labels": {"a": "b"}, "runQueueDelay": "2ms"}`:                                     "p99: missing: want a time for one of p50, p75, p90, p95, p99, p99.9",
		scraped(`"p99.9": "99us"`):                                                           "p99.9: 99µs: want a duration from 100µs to 1m",
		scraped(`"p50": "61s"`):                                                              "p50: 1m1s: want a duration from 100µs to 1m",
		scraped(`"p75": "1m", "p90": "1m", "p95": "1m"`):                                     "",
		scraped(`"p99": "5ms", "port": 0`):                                                   "port: this key occurs twice",
		`{"p99": "5ms", "source": "metrics", "port": 0}`:                                     "port: 0: want a whole number from 1 to 65535",
		`{"p99": "5ms", "source": "metrics", "port": 1e9}`:                                   "port: 1e9: want a whole number from 1 to 65535",
		`{"p99": "5ms", "source": "socket", "port": 1}`:                                      "",
		`{"p99": "5ms", "source": "socket"}`:                                                 "port: missing: want a whole number from 1 to 65535",
		`{"p99": "5ms", "source": "socket", "port": 1, "path": "/x"}`:                        "path: the source socket has no histogram of the service: want no such key",
		`{"p99": "5ms", "source": "socket", "port": 1, "labels": {"a": "b"}}`:                "labels: the source socket has no histogram of the service: want no such key",
		`{"p99": "5ms", "source": "query", "port": 1}`:                                       "port: 1: want it for the sources metrics and socket only: Prometheus knows where it reads the pod",
		`{"p99": "5ms", "source": "query", "path": "/m"}`:                                    `path: "/m": want it for the source metrics only: Prometheus knows where it reads the pod`,
		`{"p99": "5ms", "source": "query", "labels": {"namespace": "bank"}}`:                 `labels[namespace]: "namespace": want another label, because Tenon sets namespace and pod to those of the pod`,
		`{"p99": "5ms", "source": "query", "labels": {"pod": "vault-0"}}`:                    `labels[pod]: "pod": want another label, because Tenon sets namespace and pod to those of the pod`,
		`{"p99": "5ms", "source": "query", "labels": {"le": "1"}}`:                           `labels[le]: "le": want the name of a label other than le: at most 200 letters, digits and _`,
		`{"p99": "5ms", "source": "query", "family": "a_seconds} or up"}`:                    `family: "a_seconds} or up": want the name of a histogram without _bucket: at most 200 letters, digits, _ and :`,
		`{"source": "query"}`:                                                                "p99: missing: want a time for one of p50, p75, p90, p95, p99, p99.9",
		scraped(`"p99": "5ms", "path": "metrics"`):                                           `path: "metrics": want a path such as /metrics: at most 200 letters, digits and signs without spaces, after /`,
		scraped(`"p99": "5ms", "path": "//evil/"`):                                           `path: "//evil/": want a path such as /metrics: at most 200 letters, digits and signs without spaces, after /`,
		scraped(`"p99": "5ms", "path": "/a b"`):                                              `path: "/a b": want a path such as /metrics: at most 200 letters, digits and signs without spaces, after /`,
		scraped(`"p99": "5ms", "path": "/m?a=b"`):                                            "",
		scraped(`"p99": "5ms", "path": "/a%20b?c=%2f"`):                                      "",
		scraped(`"p99": "5ms", "path": "/metrics%"`):                                         `path: "/metrics%": want a path such as /metrics: at most 200 letters, digits and signs without spaces, after /`,
		scraped(`"p99": "5ms", "family": "a_seconds"`):                                       "",
		scraped(`"p99": "5ms", "family": "a_ms"`):                                            "",
		scraped(`"p99": "5ms", "family": "a{}_seconds"`):                                     `family: "a{}_seconds": want the name of a histogram without _bucket: at most 200 letters, digits, _ and :`,
		scraped(`"p99": "5ms", "family": "a_bucket"`):                                        `family: "a_bucket": want the name of a histogram without _bucket: at most 200 letters, digits, _ and :`,
		scraped(`"p99": "5ms", "family": "a"`):                                               "familyUnit: missing: want s or ms, because the name of the family ends neither in _seconds nor in _milliseconds",
		scraped(`"p99": "5ms", "familyUnit": "us"`):                                          `familyUnit: "us": want one of s, ms`,
		scraped(`"p99": "1s", "labels": {"le": "1"}`):                                        `labels[le]: "le": want the name of a label other than le: at most 200 letters, digits and _`,
		scraped(`"p99": "1s", "labels": {"a": 1}`):                                           `labels[a]: 1: want text in quotes: "1"`,
		scraped(`"p99": "1s", "labels": {"a": "1", "b": "2", "c": "3", "d": "4", "e": "5"}`): "labels: 5 labels: want at most 4",
		`{"runQueueDelay": "2ms", "runQueueDelay": "3ms"}`:                                   "runQueueDelay: this key occurs twice",
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
		_, wrong := Parse([]byte("apiVersion: tenon.sh/v1alpha1\nkind: NodeConfig\nrules:\n- {name: web, class: LS, units: [web.service], objective: " + text + "}\n"))
		check("the file", wrong)
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

// TestAnObjectiveForRequestsHasItsDefaults reads the shortest and the longest
// objective for requests.
func TestAnObjectiveForRequestsHasItsDefaults(t *testing.T) {
	o, found := ReadObjective(`{"p99": "5ms", "source": "metrics", "port": 8080}`, node.LS)
	want := node.RequestObjective{Source: node.SourceMetrics, Port: 8080, Path: "/metrics", Series: node.Series{Family: "http_request_duration_seconds", Unit: time.Second}}
	want.Within[4] = 5 * time.Millisecond
	if o.Requests != want || len(found) > 0 || o.RunQueueDelay.Known() {
		t.Errorf("%+v, %v; want %+v", o, found, want)
	}
	o, found = ReadObjective(`{"runQueueDelay": "2ms", "p50": "1ms", "p99.9": "1m", "source": "metrics", "port": 1, "path": "/x", "family": "a_ms", "labels": {"b": "2", "a": "1"}}`, node.LS)
	want = node.RequestObjective{Source: node.SourceMetrics, Port: 1, Path: "/x", Series: node.Series{Family: "a_ms", Unit: time.Millisecond, Labels: [node.MaxLabels]node.Label{{Name: "a", Value: "1"}, {Name: "b", Value: "2"}}}}
	want.Within[0], want.Within[5] = time.Millisecond, time.Minute
	if o.Requests != want || len(found) > 0 || !o.RunQueueDelay.Known() {
		t.Errorf("%+v, %v; want %+v", o, found, want)
	}
	o, found = ReadObjective(`{"p90": "5ms", "source": "socket", "port": 8080}`, node.LS)
	want = node.RequestObjective{Source: node.SourceSocket, Port: 8080}
	want.Within[2] = 5 * time.Millisecond
	if o.Requests != want || len(found) > 0 {
		t.Errorf("%+v, %v; want %+v", o, found, want)
	}
	o, found = ReadObjective(`{"p99": "5ms", "source": "query", "family": "job:rtt_seconds", "labels": {"code": "200"}}`, node.LS)
	want = node.RequestObjective{Source: node.SourceQuery, Series: node.Series{Family: "job:rtt_seconds", Unit: time.Second, Labels: [node.MaxLabels]node.Label{{Name: "code", Value: "200"}}}}
	want.Within[4] = 5 * time.Millisecond
	if o.Requests != want || len(found) > 0 {
		t.Errorf("%+v, %v; want %+v", o, found, want)
	}
	if _, found = ReadObjective(scraped(`"p99": "5ms"`), node.BE); len(found) != 1 || found[0].String() != "p99: 5ms: want it for LSE, LSR or LS only: class BE has no latency objective" {
		t.Errorf("of a batch pod: %v", found)
	}
}

// TestOnlyAPodHasTheSourceQuery states objectives with the source query in the
// places that select pods, and in the file of a node, whose rules select none.
func TestOnlyAPodHasTheSourceQuery(t *testing.T) {
	const text = `{"p99": "5ms", "source": "query"}`
	if _, found := ParseConfigMap(map[string]string{keyObjective: `{"objectives": [{"namespaces": ["shop"], "objective": ` + text + `}]}`}); len(found) > 0 {
		t.Errorf("in the ConfigMap: %v", found)
	}
	_, found := Parse([]byte("apiVersion: tenon.sh/v1alpha1\nkind: NodeConfig\nrules:\n- {name: web, class: LS, units: [web.service], objective: " + text + "}\n"))
	if len(found) != 1 || found[0].Field != "rules[0].objective.source" || !strings.HasSuffix(found[0].String(), `"query": want metrics, because only a pod can have the source query`) {
		t.Errorf("in the file: %v", found)
	}
}

// TestAnAdministratorLimitsObjectivesForRequests checks the two keys beside the
// list of objectives, which hold for the words of pods, too.
func TestAnAdministratorLimitsObjectivesForRequests(t *testing.T) {
	o, _ := ReadObjective(scraped(`"p99": "5ms"`), node.LS)
	for text, want := range map[string]node.SourceTrouble{
		`{}`: "",
		`{"scrape": true, "leastRequestLatency": "5ms"}`:                                         "",
		`{"scrape": false, "leastRequestLatency": "5ms"}`:                                        node.TroubleOff,
		`{"leastRequestLatency": "6ms"}`:                                                         node.TroubleTooStrict,
		`{"nodeConfigs": [{"nodeSelector": {"matchLabels": {"size": "big"}}, "scrape": false}]}`: node.TroubleOff,
	} {
		c := cluster(t, map[string]string{keyObjective: text})
		if got := nodeConfig(t, c, big, nil).Objectives.Refuses(o.Requests); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
	limits := PodObjectives{LeastRunQueueDelay: node.Some(2 * time.Millisecond), LeastRequestLatency: node.Some(6 * time.Millisecond)}
	strict, _ := ReadObjective(scraped(`"runQueueDelay": "1ms", "p50": "6ms", "p99": "5ms"`), node.LS)
	faults := limits.TooStrict(strict)
	if len(faults) != 2 || faults[0].String() != "runQueueDelay: 1ms: want 2ms or more (leastRunQueueDelay in objective-config)" || faults[1].String() != "p99: 5ms: want 6ms or more (leastRequestLatency in objective-config)" {
		t.Errorf("%v", faults)
	}
	if got := limits.Limit(strict); got.RunQueueDelay.Known() || got.TooStrict.Or(0) != time.Millisecond || got.Requests != strict.Requests {
		t.Errorf("%+v", got)
	}
	limits.LeastRunQueueDelay = strict.RunQueueDelay
	if got := limits.Limit(strict); got != strict || (PodObjectives{}).Limit(strict) != strict {
		t.Errorf("%+v", got)
	}
	_, faults = ParseConfigMap(map[string]string{keyObjective: `{"leastRunQueueDelay": "3ms", "objectives": [{"namespaces": ["shop"], "objective": {"runQueueDelay": "2ms"}}]}`})
	if len(faults) != 1 || faults[0].String() != "objective-config.objectives[0].objective.runQueueDelay: 2ms: want 3ms or more (leastRunQueueDelay in objective-config)" {
		t.Errorf("%v", faults)
	}
	c := cluster(t, map[string]string{keyObjective: `{"scrape": false, "leastRequestLatency": "5ms"}`})
	for text, want := range map[string]node.SourceTrouble{`{"p99": "5ms", "source": "query"}`: "", `{"p99": "4ms", "source": "query"}`: node.TroubleTooStrict} {
		o, _ := ReadObjective(text, node.LS)
		if got := nodeConfig(t, c, nil, nil).Objectives.Refuses(o.Requests); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
	if _, faults := ParseConfigMap(map[string]string{keyObjective: `{"leastRequestLatency": "1us"}`}); len(faults) != 1 || faults[0].String() != "objective-config.leastRequestLatency: 1µs: want a duration from 100µs to 1m" {
		t.Errorf("%v", faults)
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
		`{"objectives": [{"namespaces": ["shop"]}]}`:                                                                                   "objective-config.objectives[0].objective: missing: want runQueueDelay, or a target for requests such as p99",
		`{"objectives": [{"namespaces": ["shop"], "objective": {}}]}`:                                                                  "objective-config.objectives[0].objective: missing: want runQueueDelay, or a target for requests such as p99",
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
