package vm

import (
	"errors"
	"fmt"
	"math/bits"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// A set is a set of the first 64 CPUs or NUMA nodes. This test reads the files of
// the kernel without Tenon's own code.
type set uint64

// parseSet parses a list such as "0-3,8".
func parseSet(list string) (s set, err error) {
	for part := range strings.SplitSeq(strings.TrimSpace(list), ",") {
		first, last, isRange := strings.Cut(part, "-")
		from, err := strconv.ParseUint(first, 10, 6)
		to := from
		if err == nil && isRange {
			to, err = strconv.ParseUint(last, 10, 6)
		}
		if err != nil {
			return 0, fmt.Errorf("list %q: %w", list, err)
		}
		for i := from; i <= to; i++ {
			s |= 1 << i
		}
	}
	return s, nil
}

func (s set) size() int           { return bits.OnesCount64(uint64(s)) }
func (s set) contains(o set) bool { return o&^s == 0 }

// A division is how the guest's CPUs are arranged, as sysfs says.
type division struct{ cores, caches, nodes []set }

// readDivision reads the arrangement, and checks that it is 2 sockets × 2 L3
// caches × 2 cores × 2 threads.
func readDivision(g *guestNode) (d division) {
	g.t.Helper()
	for to, files := range map[*[]set]string{
		&d.cores:  "cpu/cpu[0-9]*/topology/thread_siblings_list",
		&d.caches: "cpu/cpu[0-9]*/cache/index3/shared_cpu_list",
		&d.nodes:  "node/node[0-9]*/cpulist",
	} {
		seen := map[set]bool{}
		for line := range strings.FieldsSeq(g.sh("cd /sys/devices/system; cat " + files)) {
			s, err := parseSet(line)
			must(g.t, err)
			if !seen[s] {
				*to = append(*to, s)
			}
			seen[s] = true
		}
	}
	for what, sizes := range map[string][2]int{"cores": {len(d.cores), 8}, "L3 caches": {len(d.caches), 4}, "NUMA nodes": {len(d.nodes), 2}} {
		if sizes[0] != sizes[1] {
			g.t.Fatalf("the guest has %d %s, want %d", sizes[0], what, sizes[1])
		}
	}
	return d
}

// indexOf returns the index of the set that contains another, or -1.
func indexOf(sets []set, cpus set) int {
	for i, s := range sets {
		if cpus != 0 && s.contains(cpus) {
			return i
		}
	}
	return -1
}

// A bound has the CPUs and the memory of a pod with one container, as its cgroups
// have them.
type bound struct {
	file   string // the cpuset.cpus that is set: that of the pod, or of the container
	cpus   set    // its value
	mems   string // cpuset.mems of the same cgroup
	inside set    // cpuset.cpus.effective of the container
}

// boundOf reads the cgroups of pods.
func boundOf(g *guestNode, pods ...corev1.Pod) (all []bound) {
	g.t.Helper()
	groups := map[string][]string{}
	for line := range strings.Lines(g.sh("cd /sys/fs/cgroup" + g.n.CgroupRoot + `; for d in $(find kubepods -type d -path '*/pod*'); do
		echo "${d##*/pod}|$d|$(cat $d/cpuset.cpus)|$(cat $d/cpuset.mems)|$(cat $d/cpuset.cpus.effective)"; done`)) {
		if f := strings.Split(strings.TrimSpace(line), "|"); len(f) == 5 {
			groups[f[0]] = f[1:] // by UID, or UID/ID of the container
		}
	}
	for _, p := range pods {
		pod := groups[string(p.UID)]
		container := groups[string(p.UID)+"/"+strings.TrimPrefix(p.Status.ContainerStatuses[0].ContainerID, "containerd://")]
		if pod == nil || container == nil {
			g.t.Fatalf("%s has no cgroup among %v", p.Name, groups)
		}
		g.t.Logf("%s: cpuset.cpus and cpuset.mems of the pod %q %q, of the container %q %q, cpuset.cpus.effective %s",
			p.Name, pod[1], pod[2], container[1], container[2], container[3])
		at := pod
		if at[1] == "" {
			at = container
		}
		b := bound{file: "/sys/fs/cgroup" + g.n.CgroupRoot + "/" + at[0] + "/cpuset.cpus", mems: at[2]}
		var err error
		if at[1] != "" {
			b.cpus, err = parseSet(at[1])
			must(g.t, err)
		}
		b.inside, err = parseSet(container[3])
		must(g.t, err)
		all = append(all, b)
	}
	return all
}

// boundSoon waits until a pod has CPUs, and logs whether the pod had them at
// its start. In a guest that is busy with other pods, a tick of tenond may take
// longer than the start of a pod waits.
func boundSoon(g *guestNode, name string) (b bound) {
	g.t.Helper()
	g.soon(time.Minute, name+" has CPUs", func() error {
		pods, err := g.pods(name)
		if err != nil {
			return err
		}
		if b = boundOf(g, pods...)[0]; b.cpus == 0 {
			return errors.New("it has none")
		}
		cpus, mems := firstLines(g, pods[0])
		g.t.Logf("%s began on CPUs %b and NUMA nodes %b, and has CPUs %b and memory %q", name, cpus, mems, b.cpus, b.mems)
		return nil
	})
	return b
}

// firstLines reads the log of a container in the guest. It returns the CPUs and
// NUMA nodes on which the container wrote its first lines.
func firstLines(g *guestNode, p corev1.Pod) (cpus, mems set) {
	g.t.Helper()
	var said string
	g.soon(3*time.Minute, p.Name+" has printed where it may run", func() error {
		var err error
		said, err = g.try("cat /var/log/pods/default_" + p.Name + "_*/*/0.log")
		if err == nil && !strings.Contains(said, "Mems_allowed_list:") {
			err = fmt.Errorf("it says %q", said)
		}
		return err
	})
	list := func(name string) set {
		_, text, _ := strings.Cut(said, name+":\t")
		text, _, _ = strings.Cut(text, "\n")
		s, err := parseSet(text)
		must(g.t, err)
		return s
	}
	return list("Cpus_allowed_list"), list("Mems_allowed_list")
}

// published returns a published manifest with changes, pairs of old and new
// text. Each of them must change one line.
func published(t *testing.T, name string, changes ...string) string {
	t.Helper()
	text, err := os.ReadFile("../../examples/scheduling/" + name + ".yaml")
	must(t, err)
	ours := strings.NewReplacer(changes...).Replace(string(text))
	lines, changed := strings.Split(ours, "\n"), 0
	for i, line := range strings.Split(string(text), "\n") {
		if line != lines[i] {
			t.Logf("%s.yaml:%d: %q in place of %q", name, i+1, lines[i], line)
			changed++
		}
	}
	if changed != len(changes)/2 {
		t.Errorf("%s.yaml is changed in %d lines, want %d", name, changed, len(changes)/2)
	}
	return ours
}

// ownerPod is a pod that owns two CPUs. It prints where it may run.
const ownerPod = `{apiVersion: v1, kind: Pod, metadata: {name: NAME, labels: {koordinator.sh/qosClass: CLASS}}, spec: {terminationGracePeriodSeconds: 0,
containers: [{name: c, image: "busybox:1", command: [sh, -c, "grep _allowed_list /proc/self/status; exec sleep 100000"],
resources: {requests: {cpu: 2, memory: 32Mi}, limits: {cpu: 2, memory: 32Mi}}}]}}
`

// TestPublishedPodsOnSeveralCaches runs the published pods of seed 002 on a node
// with 2 sockets × 2 L3 caches × 2 cores × 2 threads. Each must have its own
// cache from its first instruction on, with the memory of its NUMA node. A pod
// with static-burst must grow into a free cache, and give it back within a turn
// of tenond when an LSE pod arrives. The test runs only in make soak.
func TestPublishedPodsOnSeveralCaches(t *testing.T) {
	needMachines(t)
	if !runsEverywhere() {
		t.Skip("runs in make soak: set TENON_TEST_KERNELS=all")
	}
	t.Parallel()
	m := forKubernetes(countInstructions(t, machine(t)))
	m.Topology = Topology{Sockets: 2, CoresPerSocket: 4, ThreadsPerCore: 2, CachesPerSocket: 2}
	// The host gives a guest only the memory that it uses. The two pods of nginx
	// request 8 GiB each.
	m.MiBPerNode = 12 << 10
	g := startGuestNode(t, "caches", m, 90*time.Minute)
	d := readDivision(g)
	theyHaveCachesOfTheirOwn(g, d)
	aPoolGrowsAndGivesBack(g, d)
	t.Logf("the ticks of tenond:\n%s", g.sh("wget -q -O - http://127.0.0.1:9909/metrics | grep -E '^tenon_(ticks_total|tick_duration_seconds_(sum|count)|reaction_seconds_(sum|count))' || true"))
}

// theyHaveCachesOfTheirOwn runs the published pods without a change. They request
// all CPUs of the node.
func theyHaveCachesOfTheirOwn(g *guestNode, d division) {
	t := g.t
	g.kubectl("label", "node", g.n.Name, "policy=intel7") // the published label has a slash
	for _, name := range []string{"configmap", "nginx-topology-aware", "go-demo"} {
		g.create(published(t, name))
	}
	nginx, demo := g.running("nginx-deployment-", 2), g.running("go-demo-", 4)
	g.create(published(t, "cal-pi")) // it keeps four CPUs busy from now on
	pi := g.running("cal-pi", 1)
	owners := boundOf(g, append(nginx, pi...)...)
	owned, local := set(0), 0
	for i, b := range owners {
		name := append(nginx, pi...)[i].Name
		cache, node := indexOf(d.caches, b.cpus), indexOf(d.nodes, b.cpus)
		if cache < 0 || b.cpus != d.caches[cache] || b.inside != b.cpus {
			t.Errorf("%s has CPUs %b and uses %b, want those of an L3 cache: %b", name, b.cpus, b.inside, d.caches)
		}
		if owned&b.cpus != 0 {
			t.Errorf("%s has CPUs %b, and others own %b", name, b.cpus, owned)
		}
		owned |= b.cpus
		switch b.mems {
		case fmt.Sprint(node):
			local++
		case "":
		default:
			t.Errorf("%s has the memory of nodes %q, and CPUs of node %d", name, b.mems, node)
		}
	}
	if owned.size() != 12 {
		t.Errorf("three pods own %d CPUs, want 12", owned.size())
	}
	for i, b := range boundOf(g, demo...) {
		if b.cpus.size() != 4 || indexOf(d.caches, b.cpus) < 0 || b.cpus&owned != 0 || b.mems != fmt.Sprint(indexOf(d.nodes, b.cpus)) {
			t.Errorf("%s has CPUs %b and memory %q, want the cache without owners: %b are owned", demo[i].Name, b.cpus, b.mems, owned)
		}
		if cpus, mems := firstLines(g, demo[i]); cpus != b.cpus || fmt.Sprint(bits.TrailingZeros64(uint64(mems))) != b.mems || mems.size() != 1 {
			t.Errorf("%s began on CPUs %b and NUMA nodes %b, and now has CPUs %b and memory %q", demo[i].Name, cpus, mems, b.cpus, b.mems)
		}
	}
	// NUMA memory is promised up to three quarters of a node: one pod of nginx
	// fits there, and two do not.
	if indexOf(d.nodes, owners[0].cpus|owners[1].cpus) >= 0 && local != 2 || local < 2 {
		t.Errorf("of three owners, %d have the memory of their NUMA node only", local)
	}
	said := endOf(g, "cal-pi")
	t.Logf("cal-pi says\n%s", said)
	if found := saidByPi.FindStringSubmatch(said); found == nil {
		t.Error("cal-pi does not say that it computed all digits with 3,000 threads")
	} else if began, err := parseSet(found[1]); err != nil || began != owners[2].cpus {
		t.Errorf("cal-pi began on CPUs %s (%v), and had %b", found[1], err, owners[2].cpus)
	}
}

// saidByPi is the last line of cal-pi. Its CPUs are those at its start.
var saidByPi = regexp.MustCompile(`3\d{3} threads on CPUs ([\d,-]+), 20000 of 20000 digits right`)

// endOf waits until a pod has succeeded, and returns its log.
func endOf(g *guestNode, name string) string {
	g.t.Helper()
	begun := time.Now()
	g.soon(25*time.Minute, name+" succeeds", func() error {
		pods, err := g.pods(name)
		if err == nil && (len(pods) != 1 || pods[0].Status.Phase != corev1.PodSucceeded) {
			err = fmt.Errorf("%d exist", len(pods))
			if len(pods) == 1 {
				err = errors.New(describe(pods[0]))
			}
		}
		return err
	})
	g.t.Logf("%s has succeeded after %.0f s", name, time.Since(begun).Seconds())
	return g.sh("cat /var/log/pods/default_" + name + "_*/*/0.log")
}

// aPoolGrowsAndGivesBack lets one pod of go-demo with static-burst compute. The
// pods of nginx still own the caches of one NUMA node. On the other node, two
// CPUs of a cache are owned, so that its pools are smaller than their limit.
func aPoolGrowsAndGivesBack(g *guestNode, d division) {
	t := g.t
	g.kubectl("delete", "deployment/go-demo", "pod/cal-pi", "--wait=false")
	g.soon(10*time.Minute, "cal-pi and go-demo have ended", func() error {
		for _, prefix := range []string{"go-demo-", "cal-pi"} {
			pods, err := g.pods(prefix)
			if err == nil && len(pods) > 0 {
				err = fmt.Errorf("%d pods of %s exist", len(pods), prefix)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	owner := strings.NewReplacer("NAME", "fragment", "CLASS", "LSR")
	g.create(owner.Replace(ownerPod))
	g.running("fragment", 1)
	fragment := boundSoon(g, "fragment")
	g.create(published(t, "go-demo", "#cpu-policy: 'static-burst'", "cpu-policy: 'static-burst'"))
	pods := g.running("go-demo-", 4)
	var pool corev1.Pod
	var home bound
	for i, b := range boundOf(g, pods...) {
		if cpus, _ := firstLines(g, pods[i]); cpus != b.cpus || indexOf(d.caches, b.cpus) < 0 || b.cpus&fragment.cpus != 0 {
			t.Errorf("%s began on CPUs %b, and has %b, want open CPUs of a cache: %b are owned", pods[i].Name, cpus, b.cpus, fragment.cpus)
		}
		if b.cpus.size() == 2 {
			pool, home = pods[i], b
		}
	}
	if pool.Name == "" {
		t.Fatal("no pool has its home beside the CPUs of the pod fragment")
	}
	next := set(0) // the other cache of the same NUMA node
	for _, c := range d.caches {
		if node := indexOf(d.nodes, c); node == indexOf(d.nodes, home.cpus) && !c.contains(home.cpus) {
			next = c
		}
	}

	g.sh("pid=$(pidof go-demo | tr ' ' '\\n' | while read p; do grep -q pod" + string(pool.UID) + ` /proc/$p/cgroup && echo $p; done)
		setsid nsenter --net=/proc/$pid/ns/net wget -q -O /dev/null 'http://127.0.0.1:8080/?busy=20m' </dev/null >/run/wget.log 2>&1 &`)
	begun := time.Now()
	g.soon(15*time.Minute, "a pool that is full grows into the free cache", func() error {
		return hasCPUs(g, home.file, home.cpus|next)
	})
	t.Logf("%s grew from CPUs %b to %b after %.0f s", pool.Name, home.cpus, home.cpus|next, time.Since(begun).Seconds())
	said := g.sh(`grep 'file=cpuset.cpus' /var/log/tenond.log | grep 'grew into' | tail -n 1`)
	t.Logf("tenond: %s", strings.TrimSpace(said))

	g.create(strings.NewReplacer("NAME", "lse", "CLASS", "LSE").Replace(ownerPod))
	created, err := g.pods("lse")
	if err != nil || len(created) != 1 {
		t.Fatalf("pods: %d, %v", len(created), err)
	}
	// A sample has the guest's clock, the pool's CPUs, and those of the new
	// pod.
	g.sh(`(until [ -e /run/enough ]; do
		read at idle </proc/uptime; read pool <` + home.file + `; own=
		for f in /sys/fs/cgroup` + g.n.CgroupRoot + `/kubepods/pod` + string(created[0].UID) + `/cpuset.cpus /sys/fs/cgroup` + g.n.CgroupRoot + `/kubepods/pod` + string(created[0].UID) + `/*/cpuset.cpus; do read s <$f && own="$own $s"; done
		echo "$at|$pool|$own"; sleep 0.1; done) </dev/null >/run/samples 2>/dev/null &`)
	lse := boundOf(g, g.running("lse", 1)...)[0]
	g.soon(5*time.Minute, "the pool has its home again", func() error { return hasCPUs(g, home.file, home.cpus) })
	if lse.cpus.size() != 2 || !next.contains(lse.cpus) || lse.mems != fmt.Sprint(indexOf(d.nodes, next)) {
		t.Errorf("the LSE pod has CPUs %b and memory %q, want two of %b", lse.cpus, lse.mems, next)
	}
	lsePod := g.running("lse", 1)[0]
	if cpus, _ := firstLines(g, lsePod); cpus != lse.cpus {
		t.Errorf("the LSE pod began on CPUs %b, and has %b", cpus, lse.cpus)
	}
	judgeSamples(t, g.sh("touch /run/enough; sleep 1; cat /run/samples"), lse.cpus)
	t.Logf("tenond:\n%s", g.sh(`grep 'msg=written' /var/log/tenond.log | grep 'file=cpuset.cpus' | tail -n 12`))
	if said := g.sh(`grep 'file=cpuset.cpus' /var/log/tenond.log | grep 'gave back' || true`); !strings.Contains(said, "others own") {
		t.Errorf("tenond does not say that it gave back CPUs that others own: %q", said)
	}
}

// hasCPUs returns an error if a file of the guest does not have these CPUs.
func hasCPUs(g *guestNode, file string, want set) error {
	text, err := g.try("cat " + file)
	if err != nil {
		return err
	}
	got, err := parseSet(text)
	if err == nil && got != want {
		err = fmt.Errorf("%s is %s", file, strings.TrimSpace(text))
	}
	return err
}

// judgeSamples checks how long the pool still had CPUs that the new pod owned: at
// most a turn of tenond, which is a second.
func judgeSamples(t *testing.T, samples string, owned set) {
	t.Helper()
	// The times at which the owner's cgroup appeared and had its CPUs, and at which
	// the pool last had one of them and first had none.
	var came, first, last, left float64
	n := 0
	for line := range strings.FieldsFuncSeq(samples, func(r rune) bool { return r == '\n' }) {
		f := strings.Split(line, "|")
		if len(f) != 3 || f[1] == "" {
			continue
		}
		at, err := strconv.ParseFloat(f[0], 64)
		must(t, err)
		pool, err := parseSet(f[1])
		must(t, err)
		n++
		if pool&owned != 0 {
			last = at
		} else if left == 0 {
			left = at
		}
		if came == 0 && f[2] != "" {
			came = at
		}
		for list := range strings.FieldsSeq(f[2]) {
			if s, err := parseSet(list); err == nil && s == owned && first == 0 {
				first = at
			}
		}
	}
	t.Logf("%d samples: the owner's cgroup existed at %.2f s and had its CPUs at %.2f s; the pool had one of them last at %.2f s and none at %.2f s of the guest's clock", n, came, first, last, left)
	if last == 0 || left == 0 || first == 0 {
		t.Errorf("the samples do not show the change:\n%s", lastLines(samples, 10))
	}
	if last-first > 1 {
		t.Errorf("the pool had CPUs of the owner for %.2f s, want at most a turn", last-first)
	}
}
