package run

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"tenon.sh/tenon/internal/lab/jobs"
	"tenon.sh/tenon/internal/lab/kubectl"
	"tenon.sh/tenon/internal/lab/nodes"
	"tenon.sh/tenon/internal/lab/pinning"
	"tenon.sh/tenon/internal/lab/testbed"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

const gib = unit.Bytes(1) << 30

// podsOn returns the experiment on a node with some CPUs, all of which are free. pools
// are its L3 caches.
func podsOn(t *testing.T, cpus int, pools ...string) *pods {
	t.Helper()
	c, err := Config{Setting: testbed.Setting{Out: t.TempDir()}, Pods: &Pods{}}.OrDefaults()
	if err != nil {
		t.Fatal(err)
	}
	b := &pods{
		bench: bench{Config: c, Site: &testbed.Site{Given: c.Setting, Status: &testbed.Status{W: io.Discard}}, versions: map[string]string{}},
		space: &kubectl.Space{Experiment: pinning.Kind},
		node:  nodes.Node{Name: "a", CPUs: cpus, Free: nodes.Amounts{CPU: unit.CPUs(cpus), Memory: 32 * gib, Pods: 100}},
		cpus:  nodeCPUs{keep: 1}, limit: 4, serverLimit: 4, memory: publishedMemory,
	}
	for _, p := range pools {
		set, err := unit.ParseCPUSet(p)
		if err != nil {
			t.Fatal(err)
		}
		b.cpus.pools, b.cpus.open = append(b.cpus.pools, set), b.cpus.open.Union(set)
	}
	return b
}

// TestModesDifferInOneThing compares the pods of each mode with those of shared.
func TestModesDifferInOneThing(t *testing.T) {
	b := podsOn(t, 16, "0-7", "8-15")
	for _, part := range []string{pinning.Pi, pinning.NGINX} {
		pod := func(m pinning.Mode) (metadata, spec string) {
			o := b.manifest(cell{part, m}, 7)[0]
			if part == pinning.NGINX {
				o = o["spec"].(kubectl.Object)["template"].(kubectl.Object)
			}
			return text(t, o["metadata"]), text(t, o["spec"])
		}
		metadata, spec := pod(pinning.Shared)
		if !strings.Contains(spec, `"limits":{"cpu":"4000m"`) || strings.Contains(metadata, "cpu") {
			t.Errorf("%s shared: %s %s", part, metadata, spec)
		}
		withoutQuota := strings.Replace(spec, `"limits":{"cpu":"4000m"`, `"limits":{`, 1)
		withoutQuota = strings.Replace(withoutQuota, `{,`, `{`, 1)
		for mode, want := range map[pinning.Mode]struct{ metadata, spec string }{
			pinning.SharedAA:    {metadata, spec},
			pinning.SharedFree:  {metadata, withoutQuota},
			pinning.Pinned:      {strings.Replace(metadata, `"labels":{`, `"labels":{"koordinator.sh/qosClass":"LSR",`, 1), withoutQuota},
			pinning.PinnedQuota: {strings.Replace(metadata, `"annotations":{`, `"annotations":{"cpuset-scheduler":"true"`, 1), spec},
			pinning.StaticBurst: {strings.Replace(metadata, `"annotations":{`, `"annotations":{"cpu-policy":"static-burst","cpuset-scheduler":"true"`, 1), spec},
		} {
			gotMetadata, gotSpec := pod(mode)
			if sameJSON(gotMetadata, want.metadata) && sameJSON(gotSpec, want.spec) {
				continue
			}
			t.Errorf("%s %s:\n%s\n%s\nwant\n%s\n%s", part, mode, gotMetadata, gotSpec, want.metadata, want.spec)
		}
	}
}

func text(t *testing.T, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func sameJSON(a, b string) bool {
	var x, y any
	return json.Unmarshal([]byte(a), &x) == nil && json.Unmarshal([]byte(b), &y) == nil && fmt.Sprint(x) == fmt.Sprint(y)
}

// TestServersAreThoseOfThePublishedManifests compares names, ports and the
// configuration of nginx with the published files.
func TestServersAreThoseOfThePublishedManifests(t *testing.T) {
	b := podsOn(t, 16, "0-15")
	ours := strings.ReplaceAll(fmt.Sprintf(serverConfig, b.serverLimit), "  ", " ")
	objects := text(t, append(b.service(), append(b.manifest(cell{pinning.NGINX, pinning.Shared}, 1), b.manifest(cell{pinning.Pi, pinning.Shared}, 1)...)...))
	seen := map[string]int{}
	for _, name := range []string{"service", "configmap", "nginx", "cal-pi"} {
		published, err := os.ReadFile(filepath.Join("../../../../examples/scheduling", name+".yaml"))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(published)) {
			line = strings.TrimSpace(line)
			key, value, _ := strings.Cut(strings.TrimPrefix(line, "- "), ":")
			value = strings.TrimSpace(value)
			switch {
			case name == "configmap" && strings.HasSuffix(line, ";"):
				if line = strings.ReplaceAll(line, "  ", " "); !strings.HasPrefix(line, "#") && !strings.Contains(ours, line) {
					t.Errorf("nginx.conf lacks %q", line)
				}
			case (key == "name" || key == "nodePort" || key == "port" || key == "targetPort" || key == "image" || key == "mountPath" || key == "subPath" || key == "replicas") && value != "":
				if !strings.Contains(objects, `:"`+value) && !strings.Contains(objects, ":"+value) && value != "nginx:latest" {
					t.Errorf("%s.yaml has %q, the lab has not", name, line)
				}
			default:
				continue
			}
			seen[name]++
		}
	}
	if seen["service"] < 4 || seen["configmap"] < 8 || seen["nginx"] < 6 || seen["cal-pi"] < 3 {
		t.Errorf("lines compared: %v", seen)
	}
}

func TestWhatTheNodeCannotRunIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*pods)
		cell   cell
		says   string // empty: it runs
	}{
		"as published":         {func(*pods) {}, cell{pinning.NGINX, pinning.PinnedQuota}, ""},
		"a pool":               {func(*pods) {}, cell{pinning.Pi, pinning.StaticBurst}, ""},
		"one cache":            {func(b *pods) { b.cpus.pools = b.cpus.pools[:1] }, cell{pinning.Pi, pinning.StaticBurst}, "one L3 cache and one NUMA node"},
		"no memory":            {func(b *pods) { b.node.Free.Memory = 15 * gib }, cell{pinning.NGINX, pinning.Shared}, "room for 1 of 2 pods with 4 CPUs and 8.0 GiB each: node a has 16 CPUs and 15.0 GiB free"},
		"the job needs none":   {func(b *pods) { b.node.Free.Memory = 0 }, cell{pinning.Pi, pinning.Shared}, ""},
		"one CPU stays shared": {func(b *pods) { b.serverLimit = 8 }, cell{pinning.NGINX, pinning.Pinned}, tooFew("own CPUs of 2 pods", 16, 15).Error()},
		"all CPUs, shared":     {func(b *pods) { b.serverLimit = 8 }, cell{pinning.NGINX, pinning.SharedFree}, ""},
		"no tenond":            {func(b *pods) { b.cpus = nodeCPUs{why: "tenond does not report"} }, cell{pinning.Pi, pinning.Pinned}, "tenond does not report"},
		"no tenond, shared":    {func(b *pods) { b.cpus = nodeCPUs{why: "tenond does not report"} }, cell{pinning.Pi, pinning.Shared}, ""},
		"static policy":        {func(b *pods) { b.node.Policy = "static" }, cell{pinning.NGINX, pinning.SharedAA}, "policy of the kubelet is static"},
		"static, the job":      {func(b *pods) { b.node.Policy = "static" }, cell{pinning.Pi, pinning.SharedAA}, ""},
		"CPUs of other owners": {func(b *pods) { b.cpus.owned = unit.CPUSetOf(0, 1, 2, 3, 4, 5, 6, 7) }, cell{pinning.NGINX, pinning.Pinned}, tooFew("own CPUs of 2 pods", 8, 7).Error()},
	} {
		b := podsOn(t, 16, "0-7", "8-15")
		c.change(b)
		why := b.refuse(c.cell)
		if (why == "") != (c.says == "") || !strings.Contains(why, c.says) {
			t.Errorf("%s: %q, want %q", name, why, c.says)
		}
	}
	b := podsOn(t, 16, "0-7", "8-15")
	b.refuseUnsuited()
	b.choose(b.refuse)
	if cells, refused := b.cells, b.refused; len(cells) != 12 || len(refused) != 2 || !strings.HasPrefix(refused[0], "shared-warm: ") || !strings.HasPrefix(refused[1], "pinned-worst: ") {
		t.Errorf("%d cells %v, refused %q", len(cells), cells, refused)
	}
}

func TestTheLogOfTheJobIsRead(t *testing.T) {
	const published = "computing Pi with 3000 Threads...computed the first 20000 digets of pi in 571221 ms!\nthe first digets are: 3.14159264\nwriting to pi.txt...\nfinished!\n"
	r, cpus, err := parsePi(published)
	if err != nil || r.Seconds != 571.221 || r.First != "3.14159264" || r.Digits != 0 || r.Right != 0 || !cpus.Empty() {
		t.Errorf("%+v on %v: %v", r, cpus, err)
	}
	r, cpus, err = parsePi(published + "3007 threads on CPUs 1-4, 20000 of 20000 digits right\n")
	if err != nil || r.Threads != 3007 || r.Digits != 20000 || r.Right != 20000 || cpus != unit.CPUSetOf(1, 2, 3, 4) {
		t.Errorf("%+v on %v: %v", r, cpus, err)
	}
	if _, _, err := parsePi("Killed\n"); err == nil || !strings.Contains(err.Error(), `"Killed\n"`) {
		t.Errorf("error %v", err)
	}
}

func TestTheCountersOfAServerAreRead(t *testing.T) {
	before, err := parseCounters("tenon-lab start cpu usage_usec 1000000 nr_periods 10 nr_throttled 4 throttled_usec 5 memory 4096\n10 2000000 3\n5 1000000 1\nCpus_allowed_list:\t2-3\n")
	if err != nil || before.allowed != unit.CPUSetOf(2, 3) {
		t.Fatalf("%+v: %v", before, err)
	}
	after, err := parseCounters("tenon-lab start cpu 3000000000 nr_periods 30 nr_throttled 14 throttled_time 5000 memory 4096\n10 502000000 3\nCpus_allowed_list:\t2-3\nTcp: RtoAlgorithm RtoMin RtoMax MaxConn ActiveOpens PassiveOpens AttemptFails\nTcp: 1 200 120000 -1 7 21 3\n")
	if err != nil || after.accepted != 21 {
		t.Fatalf("%+v: %v", after, err)
	}
	var r pinning.Run
	before.addTo(&r, after)
	if r.CPU != 2 || r.Periods != 20 || r.Throttled != 10 || r.Waiting < 0.498 || r.Waiting > 0.5 {
		t.Errorf("%+v", r)
	}
	if _, err := parseCounters("sh: not found\n"); err == nil {
		t.Error("no counters are no error")
	}
}

// fakeKubectl replaces kubectl by a script.
func fakeKubectl(t *testing.T, b *pods, script string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubectl")
	if err := os.WriteFile(path, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	// Another test may fork and hold the file open. A shell can read it even then.
	b.space.Client = kubectl.Client{Path: "/bin/sh", Args: []string{path}}
}

func TestTheReportOfTheNodeSaysWhichCPUsItGives(t *testing.T) {
	b := podsOn(t, 8)
	fakeKubectl(t, b, `echo '{"status":{"cpus":{"caches":[{"cpus":"0-3"},{"cpus":"4-7"}],"reserved":"0","keep":2,
"pods":[{"uid":"u","policy":"exclusive","cpus":"4-5"},{"uid":"v","policy":"pool","cpus":"0-3"}]}}}'`)
	c, err := readCPUs(t.Context(), b.space.Client, "a")
	if err != nil || c.why != "" || c.keep != 2 || len(c.pools) != 2 || c.open.String() != "1-7" || c.owned.String() != "4-5" {
		t.Errorf("%+v: %v", c, err)
	}
	for answer, why := range map[string]string{
		"echo 'error: the server does not have a resource type' >&2; exit 1":                                       "tenond does not report the CPUs of node a",
		`echo '{"status":{"cpus":{"caches":[{"cpus":"0-3"}],"manager":"the static policy of the kubelet"}}}'`:      "the static policy of the kubelet writes the CPUs",
		`echo '{"status":{"reported":"2026-01-02T03:04:05.000006Z","cpus":{"caches":[{"cpus":"0-3"}],"keep":1}}}'`: "the last report of tenond on node a is",
	} {
		fakeKubectl(t, b, answer)
		if c, err = readCPUs(t.Context(), b.space.Client, "a"); err != nil || !strings.Contains(c.why, why) {
			t.Errorf("%+v: %v, want %q", c, err, why)
		}
	}
}

// TestPodsMustHoldWhatTheirModeGives compares what tenond reports of two pods, u
// and v, with each mode.
func TestPodsMustHoldWhatTheirModeGives(t *testing.T) {
	for name, c := range map[string]struct {
		mode pinning.Mode
		held string
		says string // empty: they have it
	}{
		"own CPUs":            {pinning.Pinned, `{"uid":"u","policy":"exclusive","cpus":"4-5"},{"uid":"v","policy":"exclusive","cpus":"6-7"}`, ""},
		"one has none":        {pinning.PinnedQuota, `{"uid":"u","policy":"exclusive","cpus":"4-5"},{"uid":"v","policy":"exclusive","why":"no room"}`, "a pod has no CPUs of its own: no room"},
		"seats":               {pinning.PinnedQuota, `{"uid":"u","policy":"exclusive","cpus":"4-5"},{"uid":"v","policy":"shared","cpus":"6-7"}`, "CPUs 6-7 as shared"},
		"too few":             {pinning.Pinned, `{"uid":"u","policy":"exclusive","cpus":"4"},{"uid":"v","policy":"exclusive","cpus":"6-7"}`, "CPUs 4, not 2 that no other pod has"},
		"the same CPUs":       {pinning.Pinned, `{"uid":"u","policy":"exclusive","cpus":"4-5"},{"uid":"v","policy":"exclusive","cpus":"5-6"}`, "CPUs 5-6, not 2 that no other pod has"},
		"pools":               {pinning.StaticBurst, `{"uid":"u","policy":"pool","cpus":"0-3"},{"uid":"v","policy":"pool","cpus":"0-3"}`, ""},
		"own, and not a pool": {pinning.StaticBurst, `{"uid":"u","policy":"exclusive","cpus":"0-3"},{"uid":"v","policy":"pool","cpus":"0-3"}`, "CPUs 0-3 as exclusive"},
		"shared":              {pinning.Shared, `{"uid":"x","policy":"exclusive","cpus":"0-3"}`, ""},
		"a profile adds LSR":  {pinning.SharedFree, `{"uid":"v","policy":"exclusive","cpus":"0-1"}`, "gave a pod CPUs 0-1 (exclusive), although"},
	} {
		b := podsOn(t, 8)
		fakeKubectl(t, b, `echo '{"status":{"cpus":{"caches":[{"cpus":"0-7"}],"pods":[`+c.held+`]}}}'`)
		h, err := b.held(t.Context(), c.mode, 2, []string{"u", "v"})
		if err != nil || (h.why == "") != (c.says == "") || !strings.Contains(h.why, c.says) {
			t.Errorf("%s: %+v, %v, want %q", name, h, err, c.says)
		}
	}
}

// TestCountersThatContradictTheModeVoidARun compares the counters of two servers
// with the quota of a mode.
func TestCountersThatContradictTheModeVoidARun(t *testing.T) {
	counters := func(cpu time.Duration, periods int64) podCounters {
		return podCounters{group: jobs.GroupCounters{Usage: node.Some(cpu), Periods: node.Some(periods)}, allowed: unit.CPUSetOf(1)}
	}
	none := []podCounters{counters(time.Second, 5), counters(time.Second, 5)}
	for says, c := range map[string]struct {
		mode  pinning.Mode
		after []podCounters
	}{
		"":                      {pinning.Shared, []podCounters{counters(3*time.Second, 9), counters(2*time.Second, 9)}},
		"is there a LimitRange": {pinning.SharedFree, []podCounters{counters(3*time.Second, 9), counters(2*time.Second, 9)}},
		"is cpuCFSQuota off":    {pinning.PinnedQuota, []podCounters{counters(3*time.Second, 5), counters(2*time.Second, 5)}},
		"did not lead to both":  {pinning.Shared, []podCounters{counters(5*time.Second, 9), counters(2*time.Second, 9)}},
		"was started again":     {pinning.Shared, []podCounters{counters(3*time.Second, 9), counters(time.Millisecond, 9)}},
	} {
		var r pinning.Run
		podsOn(t, 8).count(c.mode, none, c.after, &r)
		if text := strings.Join(r.Void, "; "); (text == "") != (says == "") || !strings.Contains(text, says) {
			t.Errorf("%s: void %q, want %q", c.mode, text, says)
		}
	}
	var r pinning.Run
	podsOn(t, 8).count(pinning.Shared, none, nil, &r)
	if r.CPU != 0 || len(r.Void) > 0 {
		t.Errorf("without a second reading: %+v", r)
	}
}

// TestTheLoadWaitsUntilTheServiceLeadsToBothServers lets one server accept all
// connections, and the other begin after some readings of its counters, or never.
func TestTheLoadWaitsUntilTheServiceLeadsToBothServers(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer server.Close()
	b := podsOn(t, 8)
	host, port, err := net.SplitHostPort(server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	b.node.Address = host
	if b.Pods.NodePort, err = strconv.Atoi(port); err != nil {
		t.Fatal(err)
	}
	servers := []replica{{"a", "u"}, {"b", "v"}}
	const readings, late = 6, 4 // two in each round
	for name, from := range map[string]int{"late": late, "never": 1000} {
		t.Run(name, func(t *testing.T) {
			b.patience = 500 * time.Millisecond
			if from == late {
				b.patience = time.Minute
			}
			log := filepath.Join(t.TempDir(), "readings")
			fakeKubectl(t, b, fmt.Sprintf(`case "$*" in
*endpointslices*) echo '{"items":[{"endpoints":[{},{}]}]}'; exit ;;
*" a "*) echo >>%[1]q; n=$(wc -l <%[1]q) ;;
*) n=$(($(wc -l <%[1]q) - %[2]d)); [ $n -gt 0 ] || n=0 ;;
esac
echo "tenon-lab start cpu 1 nr_periods 0 nr_throttled 0 throttled_time 0 memory 1"
echo "Tcp: 1 200 120000 -1 0 $((n * 20)) 0"`, log, from))
			err := b.awaitBoth(t.Context(), servers)
			if from != late {
				if err == nil || !strings.Contains(err.Error(), "pod b accepted 0 of 40 connections") {
					t.Errorf("error %v", err)
				}
				return
			}
			data, readErr := os.ReadFile(log)
			if err != nil || readErr != nil || len(data) != readings {
				t.Errorf("%v, %v after %d readings, want %d", err, readErr, len(data), readings)
			}
		})
	}
}

func TestAJobIsFollowedToItsEnd(t *testing.T) {
	b := podsOn(t, 8)
	begun := 0
	fakeKubectl(t, b, `case "$*" in
*--watch*) echo 'cal-pi|Pending|| '; echo 'cal-pi|Running|now| '; echo 'cal-pi|Failed|| '; exec sleep 100 ;;
logs*) echo limit is not a number ;;
esac`)
	if _, err := b.awaitEnd(t.Context(), "x=y", func() { begun++ }); err == nil || !strings.Contains(err.Error(), "pod cal-pi failed: limit is not a number") || begun != 1 {
		t.Errorf("error %v, begun %d times", err, begun)
	}
	fakeKubectl(t, b, `case "$*" in *--watch*) echo 'cal-pi|Running|now| '; echo 'cal-pi|Running|now| '; echo 'cal-pi|Succeeded|| '; exec sleep 100 ;; esac`)
	if why, err := b.awaitEnd(t.Context(), "x=y", func() { begun++ }); err != nil || why != "" || begun != 2 {
		t.Errorf("%q, %v, begun %d times", why, err, begun)
	}
}

// TestARunThatFailsIsVoidAndThreeInARowEndTheLab checks what happens when a pod
// fails, or a call gets no answer.
func TestARunThatFailsIsVoidAndThreeInARowEndTheLab(t *testing.T) {
	b := podsOn(t, 8)
	fakeKubectl(t, b, `case "$*" in *--watch*) echo 'cal-pi|Failed|| '; exec sleep 100 ;; create*) cat >/dev/null ;; esac`)
	for i := 1; i <= mostFailed; i++ {
		r := pinning.Run{Index: i}
		err := b.measure(t.Context(), cell{pinning.Pi, pinning.Shared}, &r)
		if void := len(r.Void) == 1 && strings.Contains(r.Void[0], "pod cal-pi failed"); void != (i < mostFailed) || (err != nil) != (i == mostFailed) {
			t.Errorf("run %d: void %q, error %v", i, r.Void, err)
		}
	}
}

func TestWrongFlagsOfTheClusterAreNamed(t *testing.T) {
	for says, c := range map[string]Config{
		"--cpus 1: on a cluster":             {Setting: testbed.Setting{CPUs: unit.CPUSetOf(1)}, Pods: &Pods{}},
		"--rounds 2":                         {Rounds: 2, Pods: &Pods{}},
		"--node-port 70000: want 1 to 65535": {Pods: &Pods{NodePort: 70000}},
		`--namespace "-x-": want 1 to 63`:    {Pods: &Pods{Target: kubectl.Target{Namespace: "-x-"}}},
		`--parts "redis"`:                    {Parts: []string{"redis"}, Pods: &Pods{}},
	} {
		if _, err := c.OrDefaults(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %q", err, says)
		}
	}
}
