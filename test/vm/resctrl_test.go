package vm

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// A divider is a machine whose kernel believes that it can divide its L3
// caches. The emulator lacks this feature. The resctrl of the kernel is real,
// and setcpuid= makes the kernel believe in the feature. The kernel then reads
// CPUID leaf 0x10. This leaf is above the processor's last leaf (level=0xb), so
// the processor returns the last leaf instead. Therefore the number of ways is
// the size of a package, and the number of groups (CLOSIDs) is the number of
// the CPU that reads the leaf. isolcpus= makes the last CPU read it. Masks and
// groups behave as on hardware, but nothing is divided, and the counters stay
// 0.
type divider struct {
	cpu      string
	topology Topology
	features string // for setcpuid=
	rdt      string // for rdt=
	isolate  string // for isolcpus=
	// closids and resources are values that the mounted resctrl must show. They
	// prove that the machine is as intended.
	closids, resources string
}

const (
	monitoring = ",cqm,cqm_llc,cqm_occup_llc,cqm_mbm_total,cqm_mbm_local"
	monitored  = ",cmt,mbmtotal,mbmlocal"
)

// alwaysDividing are dividers that run for each commit: the only one with tenond,
// and with groups for code and data. Of the others, in dividingInTurn, one runs
// for each commit.
var alwaysDividing, dividingInTurn = []string{"8 groups"}, []string{"bandwidth in amounts", "16 groups", "1 group", "bandwidth alone"}

var dividers = map[string]divider{
	"8 groups": {
		features: "rdt_a,cat_l3,cdp_l3", rdt: "l3cat,l3cdp", isolate: "0-6",
		closids: "8", resources: "L3",
	},
	"16 groups": {
		topology: Topology{Sockets: 2, CoresPerSocket: 4, ThreadsPerCore: 2},
		features: "rdt_a,cat_l3", rdt: "l3cat", isolate: "0-14",
		closids: "16", resources: "L3",
	},
	"1 group": {
		cpu:      "Skylake-Server-v4,-erms",
		features: "rdt_a,cat_l3", rdt: "l3cat", isolate: "0-6",
		closids: "1", resources: "L3",
	},
	"bandwidth in amounts": {
		cpu:      "EPYC,level=0xb",
		features: "rdt_a,cat_l3,mba", rdt: "l3cat,mba", isolate: "0-6",
		closids: "8 8", resources: "MB L3",
	},
	"bandwidth alone": {
		cpu:      "EPYC,level=0xb",
		features: "rdt_a,mba", rdt: "!l3cat,mba", isolate: "0-6",
		closids: "8", resources: "MB",
	},
}

const (
	show = " && cat /sys/fs/resctrl/info/*/num_closids && sed 's/:.*//' /sys/fs/resctrl/schemata"
	// untouched prints the state that Tenon must not change.
	untouched = "cd /sys/fs/resctrl; ls -d */ | grep -vE '^(info|mon_data|mon_groups)/'; cat schemata"
)

// TestResctrl runs the conformance suite about resctrl, and its restore, on the
// kernel's resctrl. The machines have different numbers of groups. Some have
// only caches, only bandwidth, or separate masks for code and data.
func TestResctrl(t *testing.T) {
	t.Parallel()
	m := machine(t)
	var image Image
	tests := testsOf(t, &image, "internal/machine/host", "-test.run=^TestResctrl")
	withTenon(t, &image)
	if err := image.File("/usr/bin/tenond", build(t, []string{"build"}, "./cmd/tenond")); err != nil {
		t.Fatal(err)
	}
	image.Text("/etc/divide.yaml", divideConfig)
	for _, name := range slices.Concat(alwaysDividing, chooseInTurn(t, 0, dividingInTurn)) {
		d := dividers[name]
		t.Run(name, func(t *testing.T) {
			t.Parallel() // the guest uses one CPU of the host
			m := m
			m.CPU = d.cpu
			if d.topology != (Topology{}) {
				m.Topology = d.topology
			}
			m.KernelArgs = []string{"setcpuid=" + d.features + monitoring, "rdt=" + d.rdt + monitored, "isolcpus=" + d.isolate}
			commands := []Command{
				Shell("mount", "mount -t resctrl resctrl /sys/fs/resctrl"+show),
				Shell("before", untouched),
				tests,
				Shell("left", untouched),
			}
			if name == "8 groups" {
				apart := tests
				apart.Name = "code-and-data"
				tenond := Shell("tenond", divide)
				tenond.Timeout = 5 * time.Minute
				commands = append(commands, tenond,
					Shell("remount", "umount /sys/fs/resctrl && mount -t resctrl -o cdp resctrl /sys/fs/resctrl"+show), apart)
			}
			check := func(t *findings, r Report) { checkDivision(t, r, d.closids+" "+d.resources) }
			runChecked(t, m, &image, 8*time.Minute, check, commands...)
		})
	}
}

// checkDivision checks the values that a mounted resctrl shows, and that
// nothing is left afterwards.
func checkDivision(t *findings, report Report, mounted string) {
	before, _ := report.Outcome("before")
	for name, want := range map[string]string{
		"mount":   mounted,
		"left":    words(before.Output),
		"tenond":  "L3:0=1;1=1 removed resctrl group BE " + words(before.Output),
		"remount": "4 4 L3DATA L3CODE",
	} {
		if o, ran := report.Outcome(name); ran && (o.Exit != 0 || words(o.Output) != want) {
			t.Errorf("%s: exit %d, output\n%s\nwant %s", name, o.Exit, o.Output, want)
		}
	}
	for _, name := range []string{"internal/machine/host", "code-and-data"} {
		if o, ran := report.Outcome(name); ran {
			checkAllRun(t, o)
		}
	}
}

// checkAllRun checks tests of which none may be skipped.
func checkAllRun(t *findings, o Outcome) {
	results := ParseGoTest(o.Output)
	for _, r := range results {
		if r.Action != "PASS" {
			t.Errorf("%s: %s %s in the guest:\n%s", o.Name, r.Action, r.Name, r.Output)
		}
	}
	t.Logf("%s: %d tests in %.1f s", o.Name, len(results), o.Took.Seconds())
	if o.Exit != 0 || len(results) < 4 {
		t.Errorf("%s: exit %d after %d tests:\n%s", o.Name, o.Exit, len(results), o.Output)
	}
}

const divideConfig = `apiVersion: tenon.sh/v1alpha1
kind: NodeConfig
period: 100ms
resource-qos-config:
  beClass: {resctrlQOS: {enable: true, catRangeEndPercent: 50}}
`

// divide lets tenond give BE one of the three ways of each cache. Then it kills
// tenond, and restores the node.
const divide = `
	group=/sys/fs/resctrl/BE
	tenond --config /etc/divide.yaml --no-watchdog >/tmp/tenond.log 2>&1 & tenond=$!
	tenon run --qos BE --quiet -- sh -c 'sleep 1000 & exec sleep 1000' &
	n=0
	until [ "$(grep -c . $group/tasks 2>/dev/null)" = 2 ] || [ $((n += 1)) -gt 200 ]; do sleep 0.3; done
	[ $n -le 200 ] || cat /tmp/tenond.log
	cat $group/schemata
	kill -9 $tenond
	! tenon restore >/tmp/restored 2>&1 || echo the restore did not fail, although a cgroup is in use
	grep ^removed /tmp/restored
	kill $(cat /sys/fs/cgroup/tenon-be/*/cgroup.procs)
	wait
	` + untouched

// words replaces each sequence of spaces in a text by one space, because
// kernels pad schemata.
func words(text string) string { return strings.Join(strings.Fields(text), " ") }
