package policy

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tenon.sh/tenon/internal/decide/burst"
	"tenon.sh/tenon/internal/decide/cpus/pick"
	"tenon.sh/tenon/internal/decide/evict"
	"tenon.sh/tenon/internal/decide/facts"
	"tenon.sh/tenon/internal/decide/isolation"
	"tenon.sh/tenon/internal/decide/memory"
	"tenon.sh/tenon/internal/decide/overcommit"
	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/decide/suppress"
	"tenon.sh/tenon/internal/model/cpus"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

var update = flag.Bool("update", false, "rewrite the scenarios and the comparison with what the policies do now")

// TestScenarios runs every scenario in testdata. A scenario is text:
//
//	# comments describe the scenario
//	node cpus=4 [smt=2] [numa=1] [l3=1] [mem=16Gi,48Gi] [isolated=2-3] [v=1] [idle=no] [protect=no] [recursive] [bursts=no] [CONFIG] [job=700m] [empty]
//	config CONFIG, which is any field of Config by its Go names (Suppress.MinPercent=10%), and any of: qos qos=cpu.weight target=65% min=10% policy=cpuset reserved=0-1 sets=kept lend burst=auto [save=1000%] [borrow=300%] [for=60s] seats off
//	class LS [min=50%] [low=50%] [high=50%]       memory QoS of a class, or any field of its Shares
//	workload ID CLASS CGROUP [meet=CGROUP] [cpus=0-3] [cpu=2] [limit=700m] [request=1Gi] [memory=2Gi] [priority=5] [weight=512] [yields=CGROUP] [kept] [own=2|seats=2|pool=1500m [grows]] [apart=core|numa]
//	part ID NAME [limit=700m] [request=1Gi] [memory=2Gi] [weight=512]     a container of a pod
//	arrives ID …                                  a workload that has no cgroup yet
//	owner ID …                                    the overrides of a workload: see readOwner
//	limit ID 1500m                                the CPU limit of the workload from now on
//	gone ID                                       no rule matches the workload any more
//	was CGROUP FILE VALUE                         a value from before Tenon
//	objective ID 2ms [query]                      the objective of a workload for its waits; -: none. With a source, for its requests (p99)
//	memory web=2Gi node=5Gi be=?                  memory use of workloads and of the node from now on
//	live 300 web=1500m                            runs so many ticks without printing their steps
//	device NAME 8:0 [of=8:0] [mapped=vg0-data] [on=8:0,8:16] [bfq] [iocost]
//	unplug NAME                                   removes a device
//	lacks CGROUP FILE                             a knob cannot be read
//	block CLASS NAME [group] [rbps=1] [wbps=1] [riops=1] [wiops=1] [weight=50%] [latency=3ms]
//	resctrl, share, peak, tasks                   see readCache
//	evict, ends, starts                           see readEvict
//	can, falls, foreign, cookies, ask, sees, …    see readIsolation
//	law                                           see readTrial
//	restart                                       the agent restarts without its state
//	tick [every=1s] [violated] [throttled=?] web=1500m web=1500m@0-3 web=? [system=100m] [web.waits=1000*100us,30*5ms] [web.throttled=3/10:400ms] [web.threads=16/12] [web.answered=99,1]
//	----
//	the resulting steps, one on each line
//
// Every tick adds the given use to the counters, decides, and applies all
// steps. "@" also adds the use to the counters of these CPUs, and "?" removes a
// counter. A node that is not empty has the LS workload "web" and the BE
// workload "be"; job is the CPU limit of "be". More lines show other results of
// the policies:
//
//	---- left alone    the knobs on which a policy abstained in the last tick
//	---- unwatched     the safe bounds
//	---- batch         the batch resources
//	---- mechanisms    the selected isolation mechanism, and those that the scenario is about or that the line names
//	---- misfits       the workloads whose CPU limit does not fit them
//	---- trials        what the trials of mechanisms found
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := play(t, string(text))
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(string(text), got); diff != "" {
				t.Errorf("the scenario changed (-want +got):\n%s", diff)
			}
		})
	}
}

// play returns the scenario with the present results of the policies.
func play(t *testing.T, text string) string {
	t.Helper()
	var out strings.Builder
	var n *scene
	lines := bufio.NewScanner(strings.NewReader(text))
	skipping, named := false, map[string]bool{}
	for lines.Scan() {
		line := lines.Text()
		if !skipping {
			for _, w := range strings.FieldsFunc(line, func(r rune) bool { return strings.ContainsRune(" ,:;=", r) }) {
				named[strings.TrimSuffix(w, ".")] = true
			}
		}
		verb, rest, _ := strings.Cut(line, " ")
		switch {
		case line == "":
			skipping = false
		case skipping:
			continue
		case strings.HasPrefix(line, "#"):
		case verb == "node":
			n = readNode(t, rest)
			n.named = named
		case n == nil:
			t.Fatalf("scenario line %q: want a node first", line)
		case verb == "----":
			skipping = true
			fmt.Fprintln(&out, line)
			seen := n.see(t, rest)
			if len(seen) == 0 {
				seen = []string{"nothing"}
			}
			for _, s := range seen {
				fmt.Fprintln(&out, s)
			}
			continue
		default:
			n.read(t, line)
		}
		fmt.Fprintln(&out, line)
	}
	return out.String()
}

// see returns the lines that a scenario must have below a line of dashes, such
// as "---- batch".
func (n *scene) see(t *testing.T, what string) []string {
	t.Helper()
	var lines []string
	if strings.HasPrefix(what, "mechanisms ") {
		what = "mechanisms"
	}
	switch what {
	case "":
		for _, s := range n.decide(t) {
			lines = append(lines, s.String())
		}
	case "left alone":
		for _, w := range n.wants {
			if w.Intent == plan.Abstain {
				lines = append(lines, fmt.Sprintf("%v  # %s", w.Knob, w.Reason))
			}
		}
		slices.Sort(lines)
	case "batch":
		lines = n.printBatch()
	case "mechanisms":
		lines = n.selection()
	case "trials":
		lines = n.trials()
	case "misfits":
		lines = n.misfits()
	case "unwatched":
		for _, w := range suppress.SafeBounds(n.config.Suppress, n.config.NodeCPUs, n.snap) {
			lines = append(lines, fmt.Sprintf("%v at most %v  # %s", w.Knob, w.Value, w.Reason))
		}
	default:
		t.Fatalf("scenario line \"---- %s\": want left alone, unwatched or nothing", what)
	}
	return lines
}

// word is one word of a scenario line: KEY or KEY=VALUE.
type word struct{ key, val string }

func words(line string) []word {
	var all []word
	for _, w := range strings.Fields(line) {
		key, val, _ := strings.Cut(w, "=")
		all = append(all, word{key, val})
	}
	return all
}

// mustParse parses the value of a word. If that fails, it ends the test.
func mustParse[T any](t *testing.T, w word, parse func(string) (T, error)) T {
	t.Helper()
	v, err := parse(w.val)
	if err != nil {
		t.Fatalf("scenario word %s=%s: %v", w.key, w.val, err)
	}
	return v
}

func number(s string) (n int, err error) {
	_, err = fmt.Sscanf(s, "%d", &n)
	return n, err
}

func percent(s string) (unit.Percent, error) {
	n, err := number(strings.TrimSuffix(s, "%"))
	return unit.Percent(n), err
}

func readNode(t *testing.T, line string) *scene {
	t.Helper()
	var config []word
	shape := map[string]int{"smt": 2, "numa": 1, "l3": 0, "v": 2}
	can := node.Capabilities{node.FeatureCPUIdle: {Verdict: node.Yes}, node.FeatureMemoryProtect: {Verdict: node.Yes}, node.FeatureCPUBurst: {Verdict: node.Yes}}
	job := node.Maybe[unit.MilliCPU]{}
	empty, recursive := false, false
	var sizes []unit.Bytes // of the NUMA nodes
	var isolated unit.CPUSet
	for _, w := range words(line) {
		switch w.key {
		case "cpus", "smt", "numa", "l3", "v":
			shape[w.key] = mustParse(t, w, number)
		case "idle":
			can[node.FeatureCPUIdle] = node.Answer{Verdict: node.No}
		case "bursts":
			can[node.FeatureCPUBurst] = node.Answer{Verdict: node.No}
		case "protect":
			can[node.FeatureMemoryProtect] = node.Answer{Verdict: node.No, Why: "memory.low does not exist"}
		case "job":
			job = node.Some(mustParse(t, w, unit.ParseMilliCPU))
		case "empty":
			empty = true
		case "recursive": // cgroup v2 is mounted with memory_recursiveprot
			recursive = true
		case "isolated":
			isolated = mustParse(t, w, unit.ParseCPUSet)
		case "mem":
			for _, size := range strings.Split(w.val, ",") {
				bytes, err := unit.ParseBytes(size)
				if err != nil {
					t.Fatal(err)
				}
				sizes = append(sizes, bytes)
			}
		default:
			config = append(config, w)
		}
	}
	if shape["l3"] == 0 {
		shape["l3"] = max(shape["cpus"]/8, 1)
	}
	n := newScene(machine(shape["cpus"], shape["smt"], shape["l3"], shape["numa"]), shape["v"])
	n.snap.Topology.Isolated, n.snap.Knobs.Kernel.RecursiveProtection = isolated, recursive
	if sizes != nil {
		n.snap.Topology.Memory = nil
	}
	for i, size := range sizes {
		n.snap.Topology.Memory = append(n.snap.Topology.Memory, node.NUMAMemory{NUMA: node.NUMANode(i), Size: size})
	}
	smt := node.Answer{Verdict: node.No, Why: "one thread a core"}
	if n.snap.Topology.SMT() {
		smt = node.Answer{Verdict: node.Yes, Why: "several threads a core"}
	}
	can[node.FeatureHardwareSMT] = smt
	n.snap.Capabilities = can
	for _, w := range config {
		n.configure(t, w)
	}
	if !empty {
		n.add(node.Workload{ID: "web", Class: node.LS, Cgroup: "ls/web", ContentionRoot: "ls"})
		n.add(node.Workload{ID: "be", Class: node.BE, Cgroup: "be/job", ContentionRoot: "be", CPULimit: job})
	}
	return n
}

func (n *scene) configure(t *testing.T, w word) {
	t.Helper()
	switch w.key {
	case "off":
		n.config = Config{}
	case "qos":
		n.config.CPUQOS = isolation.Config{Enable: true, Means: node.Feature(w.val)}
	case "target":
		n.config.Suppress.Enable, n.config.Suppress.ThresholdPercent = true, mustParse(t, w, percent)
	case "min":
		n.config.Suppress.MinPercent = mustParse(t, w, percent)
	case "policy":
		n.config.Suppress.Policy = suppress.Policy(w.val)
	case "reserved":
		n.config.NodeCPUs.ReservedCPUs = mustParse(t, w, unit.ParseCPUSet)
	case "sets": // another component manages the CPU sets
		n.config.NodeCPUs.CPUSetsManagedExternally = w.val == "kept"
	case "seats":
		n.config.Seats.Enable = true
	case "slice": // NAME:COUNTxCPUS, whose rule has the same name
		n.readSlice(t, w)
	case "lend":
		n.config.NodeCPUs.LendLSR = true
	case "burst":
		n.config.Burst = burst.Config{Policy: burst.Policy(w.val), CPUPercent: 1000, QuotaPercent: 300, PeriodSeconds: -1, PoolPercent: 50}
	case "save":
		n.config.Burst.CPUPercent = mustParse(t, w, percent)
	case "borrow":
		n.config.Burst.QuotaPercent = mustParse(t, w, percent)
	case "for":
		n.config.Burst.PeriodSeconds = int64(mustParse(t, w, time.ParseDuration) / time.Second)
	default:
		if !n.configureField(t, w) && !n.configureIsolation(t, w) {
			n.configureBatch(t, w)
		}
	}
}

// configureField reads a word such as Suppress.MinPercent=10%, which sets a field
// of Config by its Go names. It returns false if Config has no field of the first
// name.
func (n *scene) configureField(t *testing.T, w word) bool {
	t.Helper()
	v := reflect.ValueOf(&n.config).Elem()
	for i, name := range strings.Split(w.key, ".") {
		if v.Kind() == reflect.Struct {
			v = v.FieldByName(name)
		} else {
			v = reflect.Value{}
		}
		switch {
		case !v.IsValid() && i == 0:
			return false
		case !v.IsValid():
			t.Fatalf("scenario word %s=%s: the configuration has no field %s", w.key, w.val, name)
		}
	}
	if err := setField(v, w.val); err != nil {
		t.Fatalf("scenario word %s=%s: %v", w.key, w.val, err)
	}
	return true
}

// setField sets a field to the value of a text: a duration, an amount with its
// unit, or the JSON form of the value, without the quotes of a text.
func setField(v reflect.Value, text string) error {
	var err error
	switch to := v.Addr().Interface().(type) {
	case *time.Duration:
		*to, err = time.ParseDuration(text)
	case *unit.MilliCPU:
		*to, err = unit.ParseMilliCPU(text)
	case *unit.Bytes:
		*to, err = unit.ParseBytes(text)
	case *unit.Percent:
		*to, err = percent(text)
	default:
		if err = json.Unmarshal([]byte(text), to); err != nil {
			err = json.Unmarshal([]byte(strconv.Quote(text)), to)
		}
	}
	return err
}

// TestAScenarioCanSetEveryKindOfField checks the words that set fields of Config.
func TestAScenarioCanSetEveryKindOfField(t *testing.T) {
	n := readNode(t, "cpus=4 qos Suppress.Enable=true Suppress.MinPercent=10% Suppress.Policy=cpuset Evict.Grace=7s NodeCPUs.ReservedCPUs=0-1 CPUQOS.Headroom=2 Overcommit.ReservedCPU=1500m")
	want := Config{
		NodeCPUs:   facts.NodeCPUs{ReservedCPUs: unit.CPUSetOf(0, 1)},
		CPUQOS:     isolation.Config{Enable: true, Headroom: node.Some(2)},
		Suppress:   suppress.Config{Enable: true, MinPercent: 10, Policy: suppress.ByCPUSet},
		Evict:      evict.Config{Grace: 7 * time.Second},
		Overcommit: overcommit.Config{ReservedCPU: 1500},
	}
	if !reflect.DeepEqual(n.config, want) {
		t.Errorf("the configuration is %+v, want %+v", n.config, want)
	}
}

// read applies one line of a scenario.
func (n *scene) read(t *testing.T, line string) {
	t.Helper()
	verb, rest, _ := strings.Cut(line, " ")
	f := strings.Fields(rest)
	switch verb {
	case "tick":
		n.pass(readSpell(t, rest))
	case "config":
		for _, w := range words(rest) {
			n.configure(t, w)
		}
	case "objective":
		n.setObjective(t, line, f)
	case "memory":
		n.charge(t, rest)
	case "live":
		n.readTicks(t, rest)
	case "device":
		n.readDevice(t, f)
	case "lacks":
		delete(n.snap.Knobs.Now, node.Knob{Cgroup: node.CgroupPath(f[0]), File: node.File(f[1])})
	case "unplug":
		n.unplug(rest, true)
	case "block":
		n.readBlock(t, f)
	case "resctrl", "share", "peak", "tasks":
		n.readCache(t, verb, f)
	case "evict", "ends", "starts":
		n.readEvict(t, verb, f)
	case "can", "cannot", "unsure", "falls", "refused", "foreign", "cookies", "ask", "sees":
		n.readIsolation(t, verb, rest)
	case "law":
		n.readTrial(t, f)
	case "restart":
		n.state = State{}
	case "limit":
		n.snap.Workloads = slices.Clone(n.snap.Workloads)
		i := slices.IndexFunc(n.snap.Workloads, func(w node.Workload) bool { return string(w.ID) == f[0] })
		n.snap.Workloads[i].CPULimit = node.Some(mustParse(t, word{f[0], f[1]}, unit.ParseMilliCPU))
	case "resize":
		n.readSlice(t, word{f[0], f[0]})
	case "gone":
		n.snap.Workloads = slices.DeleteFunc(slices.Clone(n.snap.Workloads), func(w node.Workload) bool { return string(w.ID) == rest })
	case "was":
		if len(f) < 3 {
			t.Fatalf("scenario line %q: want a cgroup, a file and a value", line)
		}
		n.makeGroup(node.CgroupPath(f[0]))
		v, err := node.ParseValue(node.File(f[1]), strings.Join(f[2:], " "))
		if err != nil {
			t.Fatalf("scenario line %q: %v", line, err)
		}
		n.snap.Knobs.Now[node.Knob{Cgroup: node.CgroupPath(f[0]), File: node.File(f[1])}] = v
	case "class":
		var m memory.Shares
		for _, w := range words(rest)[1:] {
			name, short := map[string]string{"min": "MinPercent", "low": "LowPercent", "high": "ThrottlingPercent"}[w.key]
			if !short {
				name = w.key
			}
			to := reflect.ValueOf(&m).Elem().FieldByName(name)
			if !to.IsValid() {
				t.Fatalf("scenario line %q: a class has no share %s", line, w.key)
			}
			if err := setField(to, w.val); err != nil {
				t.Fatalf("scenario line %q: %v", line, err)
			}
		}
		if n.config.Memory.Classes == nil {
			n.config.Memory.Classes = map[node.Class]memory.Shares{}
		}
		n.config.Memory.Classes[node.Class(f[0])] = m
	case "workload", "arrives":
		n.readWorkload(t, verb, line, f)
	case "part":
		n.readPart(t, line, f)
	case "owner":
		n.readOwner(t, line, f)
	default:
		t.Fatalf("scenario line %q: unknown", line)
	}
}

func (n *scene) readWorkload(t *testing.T, verb, line string, f []string) {
	t.Helper()
	if len(f) < 3 {
		t.Fatalf("scenario line %q: want an id, a class and a cgroup", line)
	}
	w := node.Workload{ID: node.WorkloadID(f[0]), Class: node.Class(f[1]), Cgroup: node.CgroupPath(f[2])}
	top, _, _ := strings.Cut(f[2], "/")
	w.ContentionRoot = node.CgroupPath(top)
	var now node.CPUs
	for _, v := range words(strings.Join(f[3:], " ")) {
		switch v.key {
		case "meet":
			w.ContentionRoot = node.CgroupPath(v.val)
		case "cpus":
			now.Set = mustParse(t, v, unit.ParseCPUSet)
		case "cpu":
			w.CPURequest = node.Some(mustParse(t, v, unit.ParseMilliCPU))
		case "own", "seats", "pool":
			readDemand(t, &w, v)
		case "grows":
			w.Overrides.CPUs.Grows = true
		case "apart":
			w.Overrides.CPUs.Exclusive = map[string]cpus.ExclusivePolicy{"core": cpus.PCPULevel, "numa": cpus.NUMANodeLevel}[v.val]
		case "chosen", "home", "topology":
			n.readChoice(t, &w, v)
		case "priority":
			w.Priority = mustParse(t, v, number)
		case "rule":
			w.Rule = v.val
		case "limit":
			w.CPULimit = node.Some(mustParse(t, v, unit.ParseMilliCPU))
		case "cpurequest":
			w.CPURequest = node.Some(mustParse(t, v, unit.ParseMilliCPU))
		case "weight":
			w.Weight = node.Some(mustParse(t, v, shares))
		case "yields":
			w.IdleCgroup = node.CgroupPath(v.val)
		case "kept":
			w.CPUManagedExternally, w.MemoryManagedExternally = true, true
		case "request":
			w.MemoryRequest = node.Some(mustParse(t, v, unit.ParseBytes))
		case "memory":
			w.MemoryLimit = node.Some(mustParse(t, v, unit.ParseBytes))
		default:
			t.Fatalf("scenario word %q: unknown", v.key)
		}
	}
	if verb == "arrives" {
		n.snap.Arriving = append(n.snap.Arriving, w)
		return
	}
	n.add(w)
	if !now.Set.Empty() {
		n.snap.Knobs.Now[node.Knob{Cgroup: w.Cgroup, File: node.FileCPUs}] = now
	}
}

// readDemand reads own=4, seats=4 or pool=1500m.
func readDemand(t *testing.T, w *node.Workload, v word) {
	t.Helper()
	o := &w.Overrides.CPUs
	o.Policy = map[string]cpus.Policy{"own": cpus.Exclusive, "seats": cpus.Shared, "pool": cpus.Pool}[v.key]
	if o.Policy == cpus.Pool {
		o.CPU = mustParse(t, v, unit.ParseMilliCPU)
		w.CPURequest = node.Some(o.CPU)
		return
	}
	o.CPUs, o.CPU = mustParse(t, v, number), w.CPURequest.Or(0)
}

// readChoice reads what a scheduler chose. chosen=0-3 are the CPUs, and
// home=0-7 is the home. topology=other means that the node now has another
// topology than the one for which the scheduler chose. topology=none means that
// the scheduler did not name the topology, as Koordinator's.
func (n *scene) readChoice(t *testing.T, w *node.Workload, v word) {
	t.Helper()
	if w.Overrides.CPUs.Chosen == nil {
		w.Overrides.CPUs.Chosen = &cpus.Choice{}
	}
	c := w.Overrides.CPUs.Chosen
	c.Policy = w.Overrides.CPUs.Policy
	if c.Topology == 0 && v.key != "topology" {
		c.Topology = pick.Compile(n.snap.Topology).Hash()
	}
	switch v.key {
	case "chosen":
		c.CPUs = mustParse(t, v, unit.ParseCPUSet)
	case "home":
		c.Domain = mustParse(t, v, unit.ParseCPUSet)
	default:
		c.Topology = map[string]cpus.Hash{"other": 0xff}[v.val]
	}
}

func readSpell(t *testing.T, line string) spell {
	t.Helper()
	p := spell{
		every: time.Second, use: map[node.WorkloadID]unit.MilliCPU{},
		on: map[node.WorkloadID]unit.CPUSet{}, missing: map[node.WorkloadID]bool{},
	}
	for _, w := range words(line) {
		id := node.WorkloadID(w.key)
		amount, list, placed := strings.Cut(w.val, "@")
		switch {
		case w.key == "every":
			p.every = mustParse(t, w, time.ParseDuration)
		case strings.HasSuffix(w.key, ".throttled"):
			p.readThrottling(t, w)
		case strings.HasSuffix(w.key, ".threads"):
			p.readThreads(t, w)
		case strings.HasSuffix(w.key, ".answered"):
			p.readAnswers(t, w)
		case strings.Contains(w.key, "."):
			p.waits = append(p.waits, readWaiting(t, w))
		case w.key == "busy" && w.val == "?":
			p.blind = true
		case w.key == "throttled" && w.val == "?":
			p.unthrottled = true
		case w.key == "violated":
			p.violated = true
		case w.val == "?":
			p.missing[id] = true
		case w.key == "system":
			p.system = mustParse(t, w, unit.ParseMilliCPU)
		default:
			p.use[id] = mustParse(t, word{w.key, amount}, unit.ParseMilliCPU)
			if placed {
				p.on[id] = mustParse(t, word{w.key, list}, unit.ParseCPUSet)
			}
		}
	}
	return p
}
