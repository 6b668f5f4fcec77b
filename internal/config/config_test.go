package config

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"tenon.sh/tenon/internal/decide/burst"
	"tenon.sh/tenon/internal/decide/facts"
	"tenon.sh/tenon/internal/decide/isolation"
	"tenon.sh/tenon/internal/decide/match"
	"tenon.sh/tenon/internal/decide/memory"
	"tenon.sh/tenon/internal/decide/policy"
	"tenon.sh/tenon/internal/decide/suppress"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

var update = flag.Bool("update", false, "rewrite the messages of the wrong files")

const header = "apiVersion: tenon.sh/v1alpha1\nkind: NodeConfig\nrules:\n- {name: batch, class: BE, units: [batch.slice]}\n"

// mustParse returns the configuration in a text. The test fails if the text has
// a fault.
func mustParse(t *testing.T, text string) Config {
	t.Helper()
	c, faults := Parse([]byte(text))
	for _, f := range faults {
		t.Error(f)
	}
	if t.Failed() {
		t.Fatalf("in\n%s", text)
	}
	return c
}

// TestWrongFilesGetTheirMessage reads each file of testdata/wrong. The error
// must be the content of its .want file.
func TestWrongFilesGetTheirMessage(t *testing.T) {
	files, err := filepath.Glob("testdata/wrong/*.yaml")
	if err != nil || len(files) < 10 {
		t.Fatalf("%d wrong files, %v; want ten and more", len(files), err)
	}
	for _, path := range files {
		name := filepath.Base(path)
		t.Run(strings.TrimSuffix(name, ".yaml"), func(t *testing.T) {
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			c, faults := Parse(data)
			if len(faults) == 0 || !reflect.DeepEqual(c, Config{}) {
				t.Fatalf("%d faults and the configuration %+v; want faults and no configuration", len(faults), c)
			}
			got := strings.ReplaceAll((&Invalid{Path: name, Faults: faults}).Error(), mechanismNames(), "MECHANISMS") + "\n"
			golden := strings.TrimSuffix(path, ".yaml") + ".want"
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatalf("%v (go test -update makes it)", err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("the message changed (-want +got):\n%s", diff)
			}
		})
	}
}

// defaultBurst is the burst configuration without a policy. Its numbers apply to
// pods that set their own policy.
var defaultBurst = burst.Config{CPUPercent: 1000, QuotaPercent: 300, PeriodSeconds: -1, PoolPercent: 50}

// TestDefaultFileTurnsOnCPUQOSAlone checks that the file of a new installation
// does not bound BE. Only a setting of the owner may enable CPU suppress.
func TestDefaultFileTurnsOnCPUQOSAlone(t *testing.T) {
	c := mustParse(t, string(Default()))
	want := policy.Config{
		CPUQOS:   isolation.Config{Enable: true, Measured: true, Hold: node.Some(200 * time.Microsecond)},
		NodeCPUs: facts.NodeCPUs{LendLSR: true}, Suppress: suppress.Config{ThresholdPercent: 65, Policy: suppress.ByQuota},
		Burst: defaultBurst,
	}
	if !reflect.DeepEqual(c.Policy, want) || c.Period != time.Second || len(c.Rules) == 0 || len(c.Notices) > 0 {
		t.Errorf("the default file means %+v", c)
	}
}

// The default file must stay valid if all commented-out settings and all
// sections that are off are switched on.
func TestDefaultFileIsRightWithEverySettingSwitchedOn(t *testing.T) {
	off := regexp.MustCompile(`(?m)^( *)#(\S)`)
	if n := len(off.FindAll(Default(), -1)); n < 5 {
		t.Fatalf("%d settings that are switched off; want some", n)
	}
	text := strings.ReplaceAll(string(off.ReplaceAll(Default(), []byte("$1$2"))), "enable: false", "enable: true")
	c := mustParse(t, text)
	if !c.Policy.Suppress.Enable || c.Policy.Suppress.MinPercent == 0 || c.Policy.Evict.Memory.ThresholdPercent == 0 || len(c.Policy.Memory.Classes) == 0 || len(c.Rules) < 3 {
		t.Errorf("switched on, the settings mean %+v", c)
	}
}

func TestMissingSectionsEnableNothing(t *testing.T) {
	for name, text := range map[string]string{
		"missing":      header,
		"without keys": header + "resource-threshold-config:\nresource-qos-config: {}\ncpu-burst-config: null\ncolocation-config:\n",
	} {
		t.Run(name, func(t *testing.T) {
			c := mustParse(t, text)
			want := policy.Config{NodeCPUs: facts.NodeCPUs{LendLSR: true}, Suppress: suppress.Config{ThresholdPercent: 65, Policy: suppress.ByCPUSet}, Burst: defaultBurst}
			if !reflect.DeepEqual(c.Policy, want) || c.Period != time.Second || len(c.Notices) > 0 {
				t.Errorf("got %+v", c)
			}
		})
	}
}

func TestRulesKeepTheirOrderAndAmounts(t *testing.T) {
	c := mustParse(t, `
apiVersion: tenon.sh/v1alpha1
kind: NodeConfig
period: 250ms
rules:
- name: web
  class: LS
  cgroups: ["system.slice/nginx.service"]
  units: ["nginx.service"]
  requests: {cpu: 500m, memory: 1Gi}
  limits: {cpu: 1.5, memory: 4Gi}
  objective: {runQueueDelay: 2ms}
- name: batch
  class: BE
  cgroups: ["batch.slice/**"]
  priority: -5
`)
	want := []match.Rule{
		{
			Name: "web", Class: node.LS, Cgroups: []string{"system.slice/nginx.service"}, Units: []string{"nginx.service"},
			CPURequest: node.Some[unit.MilliCPU](500), MemoryRequest: node.Some[unit.Bytes](1 << 30),
			CPULimit: node.Some[unit.MilliCPU](1500), MemoryLimit: node.Some[unit.Bytes](4 << 30),
			Objective: node.Objective{RunQueueDelay: node.Some(2 * time.Millisecond)},
		},
		{Name: "batch", Class: node.BE, Cgroups: []string{"batch.slice/**"}, Priority: -5},
	}
	if !reflect.DeepEqual(c.Rules, want) || c.Period != 250*time.Millisecond {
		t.Errorf("got period %v and rules %+v", c.Period, c.Rules)
	}
}

// A strategy must have the same meaning in each of its three notations, and as
// JSON text in a ConfigMap.
func TestStrategiesMeanTheSameInEveryNotation(t *testing.T) {
	want := policy.Config{
		CPUQOS:   isolation.Config{Enable: true, Measured: true, Hold: node.Some(200 * time.Microsecond)},
		NodeCPUs: facts.NodeCPUs{LendLSR: true}, Suppress: suppress.Config{Enable: true, ThresholdPercent: 70, MinPercent: 5, Policy: suppress.ByCPUSet},
		Memory: memory.Config{Classes: map[node.Class]memory.Shares{node.BE: {ThrottlingPercent: 80}}},
		Burst:  defaultBurst,
	}
	const threshold = `{"enable": true, "cpuSuppressThresholdPercent": 70, "cpuSuppressMinPercent": 5}`
	const qos = `{"beClass": {"cpuQOS": {"enable": true}, "memoryQOS": {"enable": true, "throttlingPercent": 80}}}`
	for name, form := range map[string]string{
		"keys":                       "%s",
		"cluster strategy":           `{"clusterStrategy": %s, "nodeStrategies": []}`,
		"text":                       `'%s'`,
		"text of a ConfigMap":        `'{"clusterStrategy": %s, "nodeStrategies": null}'`,
		"indented text with a tab":   "|-\n  {\t\"clusterStrategy\":\n  \t%s}\n",
		"text that is double quoted": `"{\"clusterStrategy\": REPLACED}"`,
	} {
		t.Run(name, func(t *testing.T) {
			write := func(json string) string {
				if strings.Contains(form, "REPLACED") {
					return strings.Replace(form, "REPLACED", strings.ReplaceAll(json, `"`, `\"`), 1)
				}
				return fmt.Sprintf(form, json)
			}
			text := header + "resource-threshold-config: " + write(threshold) + "\nresource-qos-config: " + write(qos) + "\n"
			if c := mustParse(t, text); !reflect.DeepEqual(c.Policy, want) {
				t.Errorf("got %+v, want %+v", c.Policy, want)
			}
		})
	}
	var s Strategies
	if err := errors.Join(json.Unmarshal([]byte(threshold), &s.Threshold), json.Unmarshal([]byte(qos), &s.QOS)); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(s.Policy(), want) || len(s.Check()) > 0 {
		t.Errorf("from JSON: %+v with faults %v, want %+v", s.Policy(), s.Check(), want)
	}
}

func TestCPUQOSIsOnIfLSOrBEAsksForIt(t *testing.T) {
	for classes, want := range map[string]bool{
		"":                                  false,
		"lsClass: {cpuQOS: {enable: true}}": true,
		"beClass: {cpuQOS: {enable: true}}": true,
		"{beClass: {cpuQOS: {enable: false}}, lsClass: {cpuQOS: {enable: true}}}": true,
		"lsrClass: {cpuQOS: {enable: true}}":                                      false,
		"systemClass: {cpuQOS: {enable: true}}":                                   false,
	} {
		c := mustParse(t, header+"resource-qos-config:\n  "+classes+"\n")
		if c.Policy.CPUQOS.Enable != want {
			t.Errorf("%s: CPU QoS is %v, want %v", classes, c.Policy.CPUQOS.Enable, want)
		}
		if alone := strings.Contains(classes, "lsr") || strings.Contains(classes, "system"); alone != (len(c.Notices) > 0) {
			t.Errorf("%s: notices %q", classes, c.Notices)
		}
	}
}

func TestSchedIdleOfBEChoosesTheMeans(t *testing.T) {
	for classes, want := range map[string]node.Feature{
		"beClass: {cpuQOS: {enable: true}}":                                                    "",
		"beClass: {cpuQOS: {enable: true, schedIdle: 0}}":                                      node.FeatureCPUWeight,
		"beClass: {cpuQOS: {enable: true, schedIdle: 1}}":                                      node.FeatureCPUIdle,
		"{beClass: {cpuQOS: {schedIdle: 0}}, lsClass: {cpuQOS: {enable: true}}}":               "", // cpuQOS is not enabled
		"{lsClass: {cpuQOS: {enable: true, schedIdle: 1}}, beClass: {cpuQOS: {enable: true}}}": "",
	} {
		c := mustParse(t, header+"resource-qos-config:\n  "+classes+"\n")
		if !c.Policy.CPUQOS.Enable || c.Policy.CPUQOS.Means != want {
			t.Errorf("%s: %+v, want %q", classes, c.Policy.CPUQOS, want)
		}
		if ls := strings.Contains(classes, "schedIdle: 1}}, be"); ls != (len(c.Notices) > 0) {
			t.Errorf("%s: notices %q", classes, c.Notices)
		}
	}
}

func TestMemoryQOSOfLSRHoldsForLSE(t *testing.T) {
	c := mustParse(t, header+`
resource-qos-config:
  lsrClass: {memoryQOS: {enable: true, minLimitPercent: 30, lowLimitPercent: 90}}
  lsClass: {memoryQOS: {enable: false, lowLimitPercent: 50}}
  beClass: {memoryQOS: {enable: true}}
  systemClass: {memoryQOS: {enable: true, lowLimitPercent: 10}}
`)
	want := map[node.Class]memory.Shares{
		node.LSR:    {MinPercent: 30, LowPercent: 90},
		node.LSE:    {MinPercent: 30, LowPercent: 90},
		node.System: {LowPercent: 10},
	}
	if off := c.Policy.Memory.Off; len(off) != 1 || off[node.LS] != (memory.Shares{LowPercent: 50}) {
		t.Errorf("switched off, but set: %v", off)
	}
	if !reflect.DeepEqual(c.Policy.Memory.Classes, want) {
		t.Errorf("got %v, want %v: LSE like LSR, nothing for a class that is off or asks for nothing", c.Policy.Memory.Classes, want)
	}
}

func TestWhatIsNotActedOnIsNoticed(t *testing.T) {
	for text, want := range map[string][]string{
		"resource-threshold-config: {allocatableEvictPriorityThreshold: 80}":                                         nil, // the section is not enabled
		"resource-threshold-config: {enable: true, allocatableEvictPriorityThreshold: 80, cpuSuppressMinPercent: 5}": {"resource-threshold-config.allocatableEvictPriorityThreshold"},
		"cpu-burst-config: {policy: none, cpuBurstPercent: 500}":                                                     nil,
		"cpu-burst-config: {policy: auto, cpuBurstPercent: 500}":                                                     nil,
		"colocation-config: {enable: true, cpuReclaimThresholdPercent: 60, midUnallocatedPercent: 5}":                {"colocation-config.midUnallocatedPercent"},
		"resource-qos-config: {beClass: {resctrlQOS: {catRangeEndPercent: 30}}}":                                     nil,
		"resource-qos-config: {beClass: {resctrlQOS: {enable: true, catRangeEndPercent: 30}}}":                       nil,
		"resource-qos-config: {beClass: {cpuQOS: {enable: true, groupIdentity: -1, schedIdle: 0}}}":                  nil,
		"resource-qos-config: {beClass: {memoryQOS: {enable: true, wmarkRatio: 0, wmarkMinAdj: 50}}}":                {"resource-qos-config.beClass.memoryQOS.wmarkMinAdj"},
		"resource-qos-config: {policies: {cpuPolicy: groupIdentity}}":                                                nil,
		"resource-qos-config: {policies: {cpuPolicy: coreSched}}":                                                    nil,
		"resource-qos-config: {policies: {netQOSPolicy: tc}}":                                                        {"resource-qos-config.policies.netQOSPolicy"},
		"resource-qos-config: {cgroupRoot: {blkioQOS: {enable: true}}}":                                              {"resource-qos-config.cgroupRoot"},
	} {
		var notices []string
		for _, key := range want {
			notices = append(notices, key+" is not acted on by this version")
		}
		if c := mustParse(t, header+text+"\n"); !slices.Equal(c.Notices, notices) {
			t.Errorf("%s: notices %q, want %q", text, c.Notices, notices)
		}
	}
}

func TestRulesThatAskForMoreThanThereIsAreNoticed(t *testing.T) {
	c := mustParse(t, "apiVersion: tenon.sh/v1alpha1\nkind: NodeConfig\nrules:\n- {name: db, class: LSE, units: [db.service], requests: {cpu: 4}}\n- {name: bound, class: LSR, units: [a.service]}\n")
	if len(c.Notices) != 1 || !strings.Contains(c.Notices[0], "rules[1]: class LSR without requests.cpu") {
		t.Errorf("notices %q, want one for the rule that does not say how many CPUs are its own", c.Notices)
	}
	c = mustParse(t, "apiVersion: tenon.sh/v1alpha1\nkind: NodeConfig\n")
	if len(c.Notices) != 1 || !strings.Contains(c.Notices[0], "rules") {
		t.Errorf("without rules: notices %q, want one that says so", c.Notices)
	}
}

func TestLoadNamesTheFileAndAllFaults(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tenon.yaml")
	if err := os.WriteFile(path, []byte(header+"periode: 1s\nrule: []\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Load(path)
	var invalid *Invalid
	if !errors.As(err, &invalid) || len(invalid.Faults) != 2 || !strings.Contains(err.Error(), path) {
		t.Errorf("error %v, want an *Invalid with two faults that names %s", err, path)
	}
	if err := os.WriteFile(path, Default(), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(path); err != nil {
		t.Error(err)
	}
	if _, err := Load(path + ".absent"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error %v, want that the file does not exist", err)
	}
}

func TestWhatIsNoFileDoesNotBlock(t *testing.T) {
	dir := t.TempDir()
	silent := filepath.Join(dir, "silent")
	if err := unix.Mkfifo(silent, 0o600); err != nil {
		t.Fatal(err)
	}
	held := filepath.Join(dir, "held")
	if err := unix.Mkfifo(held, 0o600); err != nil {
		t.Fatal(err)
	}
	writer, err := os.OpenFile(held, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	for path, want := range map[string]string{
		silent:      "is a pipe without a writer",
		held:        "i/o timeout",
		"/dev/zero": "is no regular file (Dc---------)",
		dir:         "is no regular file (d---------)",
	} {
		if _, err := Load(path); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: error %v, want one that says %q and names the path", path, err, want)
		}
	}
}

func TestPipeWithAConfigurationIsRead(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := w.Write(Default()); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(fmt.Sprintf("/proc/self/fd/%d", r.Fd())); err != nil {
		t.Error(err)
	}
}

// TestTextThatGrowsIsRefused parses nested aliases and nested lists. A megabyte
// of such text must not need much more memory.
func TestTextThatGrowsIsRefused(t *testing.T) {
	bomb := "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n"
	for i := range 12 {
		bomb += fmt.Sprintf("a%d: &a%[1]d [%s]\n", i+1, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d,", i), 10), ","))
	}
	for name, text := range map[string]string{
		"aliases of aliases": bomb,
		"lists in lists":     "rules: " + strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000),
		"half a file":        "rules:\n- {name: services, class: L",
	} {
		if _, faults := Parse([]byte(header + text)); len(faults) == 0 {
			t.Errorf("%s: no fault", name)
		}
	}
}

func TestFileOfMoreThanAMegabyteIsRefused(t *testing.T) {
	comment := "#" + strings.Repeat("x", MaxSize-len(header)-2) + "\n"
	mustParse(t, header+comment)
	if _, faults := Parse([]byte(header + comment + "\n")); len(faults) != 1 || !strings.Contains(faults[0].Problem, "longer than 1048576 bytes") {
		t.Errorf("faults %v, want that the file is too long", faults)
	}
}

func TestWrongFileOfManyLinesGetsOneHundredFaults(t *testing.T) {
	_, faults := Parse([]byte(header + strings.Repeat("- {}\n", 5_000)))
	if len(faults) != maxFaults+1 || !strings.Contains(faults[maxFaults].Problem, "more faults") {
		t.Errorf("%d faults, the last %v", len(faults), faults[len(faults)-1])
	}
}

func TestDefaultsAreInTheirRange(t *testing.T) {
	if faults := defaults.Check(); len(faults) > 0 {
		t.Errorf("the defaults have the faults %v", faults)
	}
}

func TestRulesTakeEveryClass(t *testing.T) {
	for _, k := range keysOf(reflect.TypeFor[rule]()) {
		if k.name != "class" {
			continue
		}
		for _, class := range node.Classes {
			if !slices.Contains(k.words, string(class)) || len(k.words) != len(node.Classes) {
				t.Errorf("rules take the classes %v; there are %v", k.words, node.Classes)
			}
		}
	}
}

func TestSignalsAreOnUnlessTheyAreSwitchedOff(t *testing.T) {
	const head = "apiVersion: tenon.sh/v1alpha1\nkind: NodeConfig\n"
	for text, want := range map[string]Signals{
		"":                                 {RunQueueDelay: true, Pressure: true, Requests: true},
		"signals: {runQueueDelay: auto}\n": {RunQueueDelay: true, Pressure: true, Requests: true},
		"signals: {runQueueDelay: off}\n":  {Pressure: true, Requests: true},
		"signals: {pressure: \"off\"}\n":   {RunQueueDelay: true, Requests: true},
		"signals: {requests: off}\n":       {RunQueueDelay: true, Pressure: true},
		"signals: {runQueueDelay: off, pressure: off, requests: off}\n": {},
	} {
		if got := mustParse(t, head+text).Signals; got != want {
			t.Errorf("%q: %+v, want %+v", text, got, want)
		}
	}
	_, faults := Parse([]byte(head + "signals: {runQueueDelay: no, presure: off}\n"))
	if text := fmt.Sprint(faults); len(faults) != 2 || !strings.Contains(text, "want one of auto, off") || !strings.Contains(text, "did you mean pressure") {
		t.Errorf("faults %v", faults)
	}
}
