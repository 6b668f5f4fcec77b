// Package tenon_test checks the architecture: it parses the sources and fails
// if they violate the tables in this file.
package tenon_test

import (
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the table of ARCHITECTURE.md and the list of avoided words")

// effects says whether a package may have effects other than its results.
type effects bool

const (
	// pure packages have no effects: no files, no network, no goroutines, no
	// channels, no clock, and no package variable that is assigned to.
	pure    effects = false
	affects effects = true
)

// arch is the architecture: it has a row for every package of this repository
// with Go sources. A row lists exactly the packages of this repository that its
// package imports. The test fails if a package imports a package that is not in
// its row, and also if the row lists a package that is not imported.
//
// Folders below internal are named without that prefix. The rows are in order:
// a package imports only packages above it. The table of ARCHITECTURE.md is
// generated from this one (make golden).
var arch = []struct {
	pkg     string
	effects effects
	uses    string
}{
	// model
	{"model/unit", pure, ""},
	{"model/valuetext", pure, "model/unit"},
	{"model/node", pure, "model/unit model/valuetext"},
	{"model/trial", pure, "model/node"},
	// decide
	{"decide/limit", pure, "model/unit model/node"},
	{"decide/match", pure, "model/unit model/node"},
	{"decide/plan", pure, "model/node"},
	{"decide/writeconflict", pure, "model/node decide/plan"},
	{"decide/trend", pure, "model/unit"},
	{"decide/trials/paired", pure, ""},
	{"decide/facts", pure, "model/unit model/node decide/trend"},
	{"decide/suppresscost", pure, "model/unit model/node decide/facts"},
	{"decide/cpus/lend", pure, "model/unit model/node"},
	{"decide/cpus/knapsack", pure, ""},
	{"decide/cpus/treeorder", pure, "model/unit model/node"},
	{"decide/cpus/pick", pure, "model/unit model/node decide/cpus/knapsack decide/cpus/treeorder"},
	{"decide/cpus/shortage", pure, "model/unit decide/cpus/pick"},
	{"decide/cpus/place", pure, "model/unit model/node decide/cpus/pick decide/cpus/shortage"},
	{"decide/cpus/hold", pure, "model/unit model/node decide/cpus/pick decide/cpus/shortage decide/facts"},
	{"decide/cpus/worker", pure, "model/unit model/node"},
	{"decide/cpus/seat", pure, "model/unit model/node decide/cpus/pick decide/cpus/worker decide/plan decide/facts decide/cpus/hold"},
	{"decide/cpus/grow", pure, "model/unit model/node decide/trend decide/cpus/pick decide/facts decide/cpus/hold"},
	{"decide/cpus/bind", pure, "model/unit model/node decide/plan decide/facts decide/cpus/hold"},
	{"decide/misfit", pure, "model/unit model/node decide/trend decide/facts"},
	{"decide/slo", pure, "model/node"},
	{"decide/tick", pure, "model/node model/trial decide/cpus/worker decide/plan decide/slo decide/suppresscost decide/cpus/hold decide/misfit"},
	{"decide/trials/switchback", pure, "model/unit model/node model/trial decide/trials/paired decide/facts"},
	{"decide/memory", pure, "model/unit model/node decide/limit decide/plan decide/facts"},
	{"decide/blockio", pure, "model/unit model/node decide/plan decide/facts"},
	{"decide/cache", pure, "model/unit model/node decide/plan decide/slo"},
	{"decide/evict", pure, "model/unit model/node decide/plan decide/facts"},
	{"decide/isolation", pure, "model/unit model/node decide/plan decide/facts decide/cpus/hold decide/slo decide/trials/switchback"},
	{"decide/burst", pure, "model/unit model/node decide/limit decide/plan decide/trend decide/facts decide/cpus/hold decide/cpus/seat"},
	{"decide/suppress", pure, "model/unit model/node decide/plan decide/writeconflict decide/facts decide/cpus/lend decide/cpus/hold decide/slo"},
	{"decide/overcommit", pure, "model/unit model/node decide/trend decide/facts"},
	{"decide/policy", pure, "model/unit model/node decide/plan decide/writeconflict decide/facts decide/cpus/pick decide/cpus/hold decide/cpus/seat decide/cpus/grow decide/cpus/bind decide/misfit decide/slo decide/memory decide/blockio decide/cache decide/evict decide/isolation decide/burst decide/suppress decide/overcommit"},
	{"decide/unsupported", pure, "model/node decide/blockio decide/burst decide/suppress decide/policy"},
	// kernel
	{"kernel/openfile", affects, ""},
	{"kernel/partial", affects, ""},
	{"kernel/inotify", affects, ""},
	{"kernel/psi", affects, ""},
	{"kernel/mounts", affects, ""},
	{"kernel/cgroup", affects, "model/unit kernel/openfile kernel/inotify kernel/psi kernel/mounts kernel/partial"},
	{"kernel/proc", affects, "model/unit kernel/partial"},
	{"kernel/resctrl", affects, "model/unit kernel/mounts"},
	{"kernel/rqdelay", affects, "model/unit"},
	{"kernel/schedtrace", affects, "model/unit"},
	{"kernel/scx", affects, "model/unit"},
	{"kernel/note", affects, ""},
	{"kernel/perf", affects, ""},
	{"kernel/task", affects, "model/unit"},
	// listen
	{"listen", affects, ""},
	// machine
	{"machine/conformance", affects, "model/unit model/node decide/plan"},
	{"machine/knob", pure, "model/unit model/node"},
	{"machine/statedir", affects, ""},
	{"machine/journal", affects, "model/valuetext model/node machine/statedir"},
	{"machine/blockio", affects, "model/unit model/node kernel/cgroup kernel/proc machine/knob"},
	{"machine/reread", pure, ""},
	{"machine/subtree", affects, "model/node kernel/partial kernel/cgroup"},
	{"machine/topology", affects, "model/unit model/node kernel/proc"},
	{"machine/cachectl", affects, "model/unit model/node kernel/partial kernel/cgroup kernel/resctrl machine/knob machine/journal machine/reread machine/subtree"},
	{"machine/capability", affects, "model/node kernel/cgroup kernel/proc kernel/resctrl kernel/scx kernel/task machine/blockio machine/topology machine/cachectl"},
	{"machine/usage", affects, "model/unit model/node kernel/cgroup kernel/proc kernel/rqdelay machine/reread machine/subtree"},
	{"machine/vendormark", affects, "model/node kernel/cgroup machine/journal"},
	{"machine/exempt", affects, "model/node kernel/cgroup machine/journal"},
	{"machine/bescheduler", affects, "model/unit model/node kernel/cgroup kernel/scx machine/reread machine/topology"},
	{"machine/isolation", affects, "model/node kernel/partial kernel/cgroup kernel/proc kernel/scx kernel/task machine/knob machine/journal machine/reread machine/subtree machine/topology machine/vendormark machine/exempt machine/bescheduler"},
	{"machine/process", affects, "kernel/proc machine/journal"},
	{"machine/change", affects, "model/node kernel/partial kernel/cgroup kernel/note kernel/proc kernel/resctrl machine/knob machine/journal machine/blockio machine/cachectl machine/bescheduler machine/process"},
	{"machine/restore", affects, "model/node decide/plan kernel/partial kernel/cgroup kernel/note kernel/proc machine/journal machine/subtree machine/cachectl machine/process machine/change"},
	{"machine/host", affects, "model/unit model/node decide/plan kernel/partial kernel/cgroup kernel/proc machine/knob machine/journal machine/blockio machine/reread machine/subtree machine/topology machine/cachectl machine/capability machine/usage machine/vendormark machine/exempt machine/bescheduler machine/isolation machine/process machine/change machine/restore"},
	{"machine/launch", affects, "model/unit model/node decide/match kernel/cgroup kernel/proc kernel/task machine/statedir machine/host"},
	{"machine/lease", affects, "model/valuetext model/node decide/plan kernel/task machine/statedir"},
	{"machine/sim", affects, "model/unit model/node decide/plan machine/knob"},
	// runtimes
	{"runtimes/container", affects, ""},
	{"runtimes/inventory", affects, "decide/match kernel/proc runtimes/container"},
	{"runtimes/nri", affects, ""},
	// config
	{"config/textfile", affects, ""},
	{"config/absence", pure, ""},
	{"config/syntax", affects, ""},
	{"config/nodeselect", pure, "model/node"},
	{"config/objective", pure, "model/node config/nodeselect"},
	{"config/spelling", affects, ""},
	{"config/span", pure, ""},
	{"config/workers", pure, "model/node decide/cpus/worker"},
	{"config", affects, "model/unit model/node decide/match decide/facts decide/cpus/seat decide/memory decide/blockio decide/cache decide/evict decide/isolation decide/burst decide/suppress decide/overcommit decide/policy config/textfile config/span config/syntax config/nodeselect config/objective config/spelling config/workers"},
	// api
	{"api/config/v1alpha1", affects, ""},
	{"api/v1alpha1", affects, ""},
	// cluster
	{"cluster/apiserver", affects, ""},
	{"cluster/apiserver/apitest", affects, ""},
	{"cluster/contracttext", pure, "model/unit model/node decide/cpus/pick decide/cpus/place"},
	{"cluster/podpath", pure, "model/node"},
	{"cluster/quantity", pure, "model/unit"},
	{"cluster/kube", pure, "model/unit model/node decide/cpus/pick decide/cpus/place config/spelling config cluster/contracttext cluster/quantity"},
	{"cluster/stored", pure, "cluster/kube"},
	{"cluster/tenant", pure, "model/node decide/cpus/pick config/spelling config cluster/kube"},
	{"cluster/admission", pure, "model/unit model/node decide/cpus/pick config/spelling config api/config/v1alpha1 cluster/quantity cluster/kube cluster/stored cluster/tenant"},
	{"cluster/webhooks", affects, "model/node api/config/v1alpha1 cluster/kube cluster/tenant"},
	{"cluster/cpureport", affects, "model/unit model/node decide/cpus/pick decide/cpus/place api/v1alpha1"},
	{"cluster/kubelet", affects, "cluster/kube cluster/stored"},
	{"cluster/certificate", affects, ""},
	{"cluster/admission/missed", affects, "api/config/v1alpha1 cluster/kube cluster/admission"},
	{"cluster/manager/settings", affects, "config/absence config"},
	{"cluster/endpoint", affects, "listen"},
	{"cluster/manager", affects, "model/unit model/node decide/overcommit config api/config/v1alpha1 api/v1alpha1 cluster/quantity cluster/kube cluster/tenant cluster/admission cluster/webhooks cluster/certificate cluster/admission/missed cluster/manager/settings cluster/endpoint"},
	{"cluster/nodepages", affects, "model/unit model/node model/trial api/config/v1alpha1 api/v1alpha1 cluster/quantity cluster/kube"},
	{"cluster/schedulers", affects, "cluster/kube cluster/nodepages"},
	{"cluster/cpumap", affects, "model/unit model/node decide/cpus/pick"},
	{"cluster/objectivetext", affects, "decide/slo api/v1alpha1 cluster/kube cluster/nodepages"},
	{"cluster/manifest", affects, "cluster/quantity cluster/stored"},
	{"cluster/podpages", affects, "model/unit model/node decide/cpus/pick decide/cpus/place config api/config/v1alpha1 api/v1alpha1 cluster/kube cluster/admission cluster/cpureport cluster/nodepages cluster/objectivetext cluster/schedulers cluster/cpumap cluster/stored cluster/manifest"},
	{"cluster/containerstart", affects, "model/unit model/node decide/limit runtimes/nri cluster/kube cluster/kubelet"},
	{"cluster/nodereport", affects, "model/unit model/node model/trial decide/plan decide/writeconflict decide/cpus/pick decide/cpus/place decide/cpus/hold decide/slo decide/tick decide/burst decide/policy api/v1alpha1 cluster/apiserver cluster/quantity cluster/cpureport"},
	// agent
	{"agent/loop", affects, "model/unit model/node decide/facts decide/cpus/hold decide/plan decide/suppresscost decide/tick decide/policy"},
	{"agent/health", affects, "model/node decide/tick"},
	{"agent/rlimit", affects, ""},
	{"agent/configfile", affects, "config"},
	{"agent/record", affects, "model/unit model/node decide/plan decide/tick decide/policy machine/statedir"},
	{"agent/printable", affects, ""},
	{"agent/trials", affects, "model/trial"},
	{"agent/answer", affects, ""},
	{"agent/control", affects, "model/unit model/node model/trial decide/cpus/worker decide/misfit decide/plan decide/suppresscost decide/tick decide/trend decide/trials/switchback listen agent/health agent/record agent/printable agent/trials agent/answer"},
	{"agent/commands", affects, "machine/statedir"},
	{"agent/workers", affects, "model/unit model/node decide/plan decide/cpus/worker decide/tick kernel/proc machine/statedir agent/commands agent/printable agent/control"},
	{"agent/telemetry", affects, "model/unit model/node model/trial decide/misfit decide/plan decide/suppresscost decide/slo decide/tick listen agent/health agent/printable"},
	{"agent/watchdog", affects, "model/node decide/plan kernel/cgroup kernel/proc machine/journal machine/host machine/lease"},
	{"agent/install", affects, "machine/host machine/lease machine/restore config agent/control"},
	{"agent/cluster", affects, "model/unit model/node decide/limit decide/match decide/plan decide/cpus/hold decide/tick decide/policy kernel/cgroup kernel/proc machine/statedir runtimes/nri config/absence config/objective config cluster/apiserver cluster/podpath cluster/quantity cluster/kube cluster/kubelet cluster/containerstart cluster/nodereport"},
	{"agent/daemon", affects, "model/node decide/match decide/plan decide/writeconflict decide/tick decide/suppress decide/policy kernel/psi kernel/partial kernel/cgroup kernel/proc machine/statedir machine/bescheduler machine/host machine/launch machine/lease runtimes/container runtimes/inventory config agent/loop agent/health agent/rlimit agent/configfile agent/record agent/control agent/commands agent/workers agent/telemetry agent/cluster"},
	{"agent/top", affects, "model/unit model/node agent/record agent/printable agent/control"},
	// lab
	{"lab/load/protocol", affects, ""},
	{"lab/load/socket", affects, ""},
	{"lab/load/fate", pure, ""},
	{"lab/load/lines", pure, ""},
	{"lab/load", affects, "model/unit lab/load/protocol lab/load/socket lab/load/fate lab/load/lines"},
	{"lab/load/hlog", affects, "lab/load"},
	{"lab/load/wrk", affects, "model/unit lab/load/socket lab/load"},
	{"lab/stat", pure, "decide/trials/paired"},
	{"lab/capacity", pure, "lab/stat"},
	{"lab/jobs/containerlog", affects, ""},
	{"lab/jobs", affects, "model/unit model/node decide/trials/paired lab/stat lab/jobs/containerlog"},
	{"lab/chart", affects, "lab/stat"},
	{"lab/pi", affects, "kernel/proc"},
	{"lab/meter", affects, "model/node kernel/cgroup kernel/perf kernel/proc"},
	{"lab/archive", affects, ""},
	{"lab/textlayout", affects, ""},
	{"lab/report", affects, "model/unit model/node decide/trials/paired lab/load/hlog lab/stat lab/chart lab/archive lab/textlayout"},
	{"lab/claim", affects, "lab/stat lab/textlayout lab/report"},
	{"lab/report/synthetic", affects, "model/unit lab/report"},
	{"lab/colocation", affects, "lab/stat lab/chart lab/textlayout lab/report lab/claim"},
	{"lab/colocation/submission", affects, "lab/archive lab/textlayout lab/report lab/colocation"},
	{"lab/memory", affects, "model/unit lab/stat lab/chart lab/textlayout lab/report lab/claim"},
	{"lab/pinning", affects, "model/unit decide/trials/paired lab/load/wrk lab/stat lab/chart lab/archive lab/textlayout lab/pi lab/report"},
	{"lab/reaction", affects, "model/unit decide/trials/paired lab/stat lab/chart lab/archive lab/textlayout lab/report"},
	{"lab/jobfiles", affects, "lab/jobs"},
	{"lab/concurrency", affects, "model/unit decide/trials/paired lab/stat lab/capacity lab/chart lab/archive lab/textlayout lab/jobs lab/report"},
	{"lab/testbed", affects, "model/unit model/node decide/cpus/pick decide/tick decide/memory decide/isolation decide/policy kernel/cgroup kernel/proc kernel/task machine/usage machine/host agent/loop lab/archive lab/report"},
	{"lab/harness", affects, "model/unit model/node kernel/cgroup kernel/proc lab/load lab/load/hlog lab/load/wrk lab/stat lab/textlayout lab/meter lab/report lab/testbed"},
	{"lab/work", affects, "model/unit model/node kernel/proc kernel/task config/spelling lab/load/protocol lab/load lab/testbed"},
	{"lab/kubectl", affects, "lab/testbed lab/work"},
	{"lab/nodes", affects, "model/unit kernel/proc lab/report lab/testbed lab/kubectl"},
	{"lab/stepservice", affects, "model/unit kernel/task lab/testbed lab/work"},
	{"lab/concurrency/run", affects, "model/unit model/node decide/facts decide/policy kernel/cgroup kernel/perf lab/textlayout lab/jobs lab/meter lab/report lab/testbed lab/harness lab/work lab/concurrency"},
	{"lab/concurrency/cluster", affects, "model/unit lab/jobs lab/report lab/testbed lab/harness lab/kubectl lab/nodes lab/concurrency lab/concurrency/run"},
	{"lab/pinning/run", affects, "model/unit model/node decide/cpus/pick kernel/cgroup kernel/perf lab/load lab/load/wrk lab/pi lab/meter lab/report lab/testbed lab/harness lab/work lab/pinning"},
	{"lab/pinning/cluster", affects, "model/unit lab/jobs lab/load/wrk lab/textlayout lab/pi lab/report lab/testbed lab/harness lab/work lab/kubectl lab/nodes lab/pinning lab/pinning/run"},
	{"lab", affects, "model/unit lab/load lab/pi lab/report lab/colocation lab/memory lab/pinning lab/reaction lab/concurrency lab/work lab/stepservice"},
	{"lab/labtest", affects, "model/node kernel/cgroup kernel/proc config lab/testbed lab/harness lab/work lab"},
	{"lab/colocation/run", affects, "model/unit model/node decide/facts decide/suppress decide/policy kernel/schedtrace lab/load lab/load/wrk lab/report lab/colocation lab/testbed lab/harness lab/work"},
	{"lab/memory/run", affects, "model/unit model/node decide/memory decide/policy kernel/cgroup lab/load lab/report lab/memory lab/testbed lab/harness lab/work"},
	{"lab/reaction/run", affects, "model/unit model/node decide/tick agent/record lab/report lab/reaction lab/testbed lab/harness lab/stepservice"},
	{"lab/colocation/cluster", affects, "model/unit lab/load lab/report lab/colocation lab/testbed lab/harness lab/work lab/kubectl lab/colocation/run"},
	// cmd
	{"cmd/kubectl-tenon", affects, "model/node api/config/v1alpha1 api/v1alpha1 cluster/kube cluster/tenant cluster/nodepages cluster/manifest cluster/podpages cluster/schedulers"},
	{"cmd/tenon/labflag", affects, "model/unit"},
	{"cmd/tenon/labcmd", affects, "lab/report lab/testbed lab/harness lab/work lab/colocation/run lab/memory/run lab/reaction/run lab/colocation/cluster cmd/tenon/labflag"},
	{"cmd/tenon/resultcmd", affects, "lab/archive lab/report lab/colocation lab/colocation/submission lab/harness lab/colocation/run"},
	{"cmd/tenon/jobcmd", affects, "model/unit lab/jobs lab/jobfiles lab/textlayout lab/report lab/testbed lab/harness lab/concurrency lab/concurrency/run lab/concurrency/cluster lab/pi lab/pinning lab/pinning/run lab/pinning/cluster cmd/tenon/labflag"},
	{"cmd/tenon", affects, "model/unit model/node decide/plan decide/tick decide/isolation decide/suppress decide/policy decide/unsupported kernel/partial kernel/cgroup kernel/proc machine/journal machine/capability machine/restore machine/host machine/launch machine/lease runtimes/inventory config/workers config agent/loop agent/health agent/record agent/printable agent/control agent/workers agent/top lab/load lab/report lab/testbed lab/harness lab lab/colocation/run cmd/tenon/labflag cmd/tenon/labcmd cmd/tenon/resultcmd cmd/tenon/jobcmd"},
	{"cmd/tenon-manager", affects, "cluster/webhooks cluster/certificate cluster/manager"},
	{"cmd/tenond", affects, "kernel/cgroup kernel/proc machine/journal runtimes/nri config/textfile config cluster/apiserver cluster/kubelet agent/telemetry agent/watchdog agent/install agent/cluster agent/daemon"},
	// scheduler, a module of its own
	{"scheduler/plugin", affects, "decide/cpus/pick decide/cpus/place api/v1alpha1 cluster/kube cluster/cpureport cluster/stored"},
	{"scheduler/cmd/tenon-scheduler", affects, "scheduler/plugin"},
	{"scheduler/inprocess", affects, "api/v1alpha1 scheduler/plugin"},
	{"scheduler/throughput", affects, "model/unit model/node decide/cpus/pick decide/cpus/place decide/trials/paired api/v1alpha1 cluster/kube cluster/cpureport lab/stat scheduler/inprocess"},
	{"scheduler/quality", affects, "model/unit model/node decide/cpus/pick decide/cpus/place decide/trials/paired lab/stat"},
	// deploy
	{"deploy/image", affects, ""},
	// test
	{"test/turn", affects, ""},
	{"test/chart", affects, ""},
	{"test/cluster/cri", affects, ""},
	{"test/cluster/image", affects, ""},
	{"test/cluster/pki", affects, ""},
	{"test/cluster", affects, "model/unit model/node decide/cpus/pick decide/cpus/place decide/facts decide/cpus/hold kernel/task kernel/proc api/v1alpha1 cluster/kube cluster/cpureport cluster/nodepages cluster/podpages cluster/schedulers lab/pinning test/turn test/cluster/cri test/cluster/image test/cluster/pki"},
	{"test/cluster/cmd", affects, "model/unit test/cluster/image test/cluster"},
	{"test/cluster/seeds", affects, "kernel/proc kernel/task lab/pi"},
	{"test/digest", affects, ""},
	{"test/e2e", affects, "model/unit model/node decide/trials/paired decide/misfit decide/isolation decide/suppress decide/policy kernel/cgroup kernel/proc kernel/task machine/journal machine/host machine/lease machine/restore cluster/apiserver/apitest agent/loop agent/record agent/control agent/workers lab/stat"},
	{"test/scheduler", affects, ""},
	{"test/typed", affects, ""},
	{"test/vm", affects, "kernel/schedtrace test/turn test/cluster/image test/cluster"},
	{"test/vm/isolation", affects, "model/unit kernel/schedtrace kernel/scx kernel/task"},
}

// outside lists the foreign modules that only some packages may import, with
// exactly these packages. A privileged agent must not link plots or load
// generators, and a tool for one machine must not link a Kubernetes client.
var outside = map[string]string{
	"charm.land/":                      "agent/top",
	"github.com/HdrHistogram/":         "lab/load lab/load/hlog lab/report lab/report/synthetic",
	"github.com/charmbracelet/":        "agent/top",
	"github.com/cilium/ebpf":           "kernel/rqdelay kernel/scx machine/capability",
	"github.com/containerd/containerd": "runtimes/container",
	"github.com/containerd/nri":        "runtimes/nri",
	"github.com/coreos/":               "cmd/tenond",
	"github.com/go-logr/":              "cluster/apiserver cluster/manager",
	"github.com/klauspost/compress/":   "lab/archive",
	"github.com/opencontainers/":       "deploy/image",
	"github.com/prometheus/":           "cluster/manager cluster/manager/settings cluster/endpoint cluster/admission/missed agent/telemetry",
	"github.com/spf13/":                "cmd/kubectl-tenon cmd/tenon cmd/tenon/jobcmd cmd/tenon/labcmd cmd/tenon/labflag cmd/tenon/resultcmd cmd/tenon-manager cmd/tenond",
	"go.yaml.in/yaml/":                 "config config/syntax",
	"gonum.org/":                       "decide/trials/paired decide/trials/switchback lab/stat",
	"google.golang.org/":               "runtimes/container",
	"k8s.io/":                          "api/config/v1alpha1 api/v1alpha1 cluster/apiserver cluster/apiserver/apitest cluster/quantity cluster/kube cluster/stored cluster/tenant cluster/admission cluster/kubelet cluster/certificate cluster/manager/settings cluster/webhooks cluster/manager cluster/admission/missed cluster/nodepages cluster/objectivetext cluster/schedulers cluster/manifest cluster/podpages cluster/nodereport cluster/containerstart agent/cluster cmd/kubectl-tenon cmd/tenon-manager cmd/tenond scheduler/plugin scheduler/cmd/tenon-scheduler scheduler/inprocess scheduler/throughput scheduler/quality",
	"k8s.io/kubernetes/":               "scheduler/cmd/tenon-scheduler scheduler/inprocess scheduler/quality", // so that any scheduler can contain the plugin
	"sigs.k8s.io/":                     "cluster/certificate cluster/manager/settings cluster/endpoint cluster/webhooks cluster/manager cluster/admission/missed cmd/kubectl-tenon cmd/tenon-manager",
}

// pureStd is the part of the standard library that has no effects. pureUse
// lists the other packages that a pure package may import: they contain values
// and no clients.
const pureStd = "cmp encoding/json errors fmt iter maps math math/big math/bits math/rand/v2 slices sort strconv strings time"

var pureUse = map[string]string{
	"decide/trials/paired":     "gonum.org/v1/gonum/",
	"decide/trials/switchback": "gonum.org/v1/gonum/",
	"lab/stat":                 "gonum.org/v1/gonum/",
	"cluster/quantity":         "k8s.io/api/ k8s.io/apimachinery/pkg/api/",
	"cluster/kube":             "k8s.io/api/ k8s.io/apimachinery/pkg/api/",
	"cluster/admission":        "k8s.io/api/ k8s.io/apimachinery/pkg/",
	"cluster/stored":           "k8s.io/api/ k8s.io/apimachinery/pkg/",
	"cluster/tenant":           "k8s.io/api/",
}

const (
	ourModule = "tenon.sh/tenon/"
	internal  = "internal/"
)

// roots are the folders with Go sources. Nested modules below them count, too,
// except modules that only pin the versions of other projects' programs.
var roots = []string{"internal", "api", "cmd", "scheduler", "deploy", "test"}

// A room is one package, as parsed from its sources.
type room struct {
	synopsis string   // first sentence of the package comment
	imports  []string // import paths, as the file has them
	impure   []string // effects that a pure package must not have, with their places
}

// TestArchitecture parses the sources itself and does not run go list, because
// the test cache tracks the files that a test opens, but not those of a child
// process.
func TestArchitecture(t *testing.T) {
	rooms := readRooms(t)
	above := map[string]bool{}
	usedOutside := map[string]map[string]bool{}
	for _, row := range arch {
		r := rooms[row.pkg]
		if r == nil {
			t.Errorf("%s is in the table but not in the tree", row.pkg)
			continue
		}
		delete(rooms, row.pkg)
		if r.synopsis == "" {
			t.Errorf("%s has no package comment", row.pkg)
		}
		if rest, ok := strings.CutPrefix(r.synopsis, "Package "); ok && !strings.HasPrefix(rest, path.Base(row.pkg)+" ") {
			t.Errorf("%s: the package comment has another name: %s", row.pkg, r.synopsis)
		}
		allowed := strings.Fields(row.uses)
		var used []string
		for _, imp := range r.imports {
			own, isOwn := strings.CutPrefix(imp, ourModule)
			if isOwn {
				own = strings.TrimPrefix(own, internal)
				used = append(used, own)
				if !slices.Contains(allowed, own) {
					t.Errorf("%s must not import %s", row.pkg, own)
				}
				if !above[own] {
					t.Errorf("%s imports %s, which is not above it in the table", row.pkg, own)
				}
				continue
			}
			if row.effects == pure && !pureImport(row.pkg, imp) {
				t.Errorf("%s is pure and must not import %s", row.pkg, imp)
			}
			for prefix := range outside {
				if strings.HasPrefix(imp, prefix) {
					if usedOutside[prefix] == nil {
						usedOutside[prefix] = map[string]bool{}
					}
					usedOutside[prefix][row.pkg] = true
				}
			}
		}
		for _, own := range allowed {
			if !slices.Contains(used, own) {
				t.Errorf("%s may import %s and does not: take it out of the table", row.pkg, own)
			}
		}
		if row.effects == pure {
			for _, why := range r.impure {
				t.Errorf("%s is pure: %s", row.pkg, why)
			}
		}
		above[row.pkg] = true
	}
	for pkg := range rooms {
		t.Errorf("%s is in the tree but not in the table", pkg)
	}
	checkOutside(t, usedOutside)
}

func checkOutside(t *testing.T, used map[string]map[string]bool) {
	t.Helper()
	for prefix, who := range outside {
		allowed := strings.Fields(who)
		for pkg := range used[prefix] {
			if !slices.Contains(allowed, pkg) && !strings.HasPrefix(pkg, "test/") {
				t.Errorf("%s must not import %s", pkg, prefix)
			}
		}
		for _, pkg := range allowed {
			if !used[prefix][pkg] {
				t.Errorf("%s may import %s and does not: take it out of the table", pkg, prefix)
			}
		}
	}
}

func pureImport(pkg, imp string) bool {
	if slices.Contains(strings.Fields(pureStd), imp) {
		return true
	}
	for _, prefix := range strings.Fields(pureUse[pkg]) {
		if strings.HasPrefix(imp, prefix) {
			return true
		}
	}
	return false
}

// TestFoldersStandTogether checks that the rows of a folder are together, so
// that the order of the rows is also an order of the folders.
func TestFoldersStandTogether(t *testing.T) {
	var seen []string
	for _, row := range arch {
		folder, _, _ := strings.Cut(row.pkg, "/")
		switch {
		case len(seen) > 0 && seen[len(seen)-1] == folder:
		case slices.Contains(seen, folder):
			t.Errorf("%s is not beside the other rows of %s", row.pkg, folder)
		default:
			seen = append(seen, folder)
		}
	}
}

// readRooms parses every package below roots that has Go sources. In a folder
// with only test programs the test files count, too, because they contain the
// imports.
func readRooms(t *testing.T) map[string]*room {
	t.Helper()
	rooms := map[string]*room{}
	for _, root := range roots {
		eachGoFile(t, root, func(name string, f *ast.File, _ *token.FileSet) {
			isTest := strings.HasSuffix(name, "_test.go")
			if isTest && root != "test" {
				return
			}
			pkg := strings.TrimPrefix(path.Dir(filepath.ToSlash(name)), internal)
			r := rooms[pkg]
			if r == nil {
				r = &room{}
				rooms[pkg] = r
			}
			if f.Doc != nil && (r.synopsis == "" || !isTest) {
				r.synopsis = new(doc.Package).Synopsis(f.Doc.Text())
			}
			for _, spec := range f.Imports {
				imp, err := strconv.Unquote(spec.Path.Value)
				if err != nil {
					t.Fatal(err)
				}
				if self := strings.TrimPrefix(strings.TrimPrefix(imp, ourModule), internal); self == pkg {
					continue // a test package outside the tested package
				}
				r.imports = append(r.imports, imp)
			}
			if !isTest {
				r.impure = append(r.impure, effectsOf(filepath.Base(name), f)...)
			}
		})
	}
	return rooms
}

// effectsOf lists the effects in f that a pure package must not have.
func effectsOf(name string, f *ast.File) []string {
	var found []string
	clock := []string{"Now", "Since", "Until", "Sleep", "After", "Tick", "NewTimer", "NewTicker", "AfterFunc"}
	vars := map[string]bool{}
	for _, decl := range f.Decls {
		gen, ok := decl.(*ast.GenDecl)
		if !ok || gen.Tok != token.VAR {
			continue
		}
		for _, spec := range gen.Specs {
			for _, id := range spec.(*ast.ValueSpec).Names {
				vars[id.Name] = true
			}
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			found = append(found, name+" starts a goroutine")
		case *ast.ChanType:
			found = append(found, name+" has a channel")
		case *ast.SelectorExpr:
			if x, ok := n.X.(*ast.Ident); ok && x.Name == "time" && slices.Contains(clock, n.Sel.Name) {
				found = append(found, name+" asks for the time with time."+n.Sel.Name)
			}
		}
		return true
	})
	for _, decl := range f.Decls {
		if fn, ok := decl.(*ast.FuncDecl); ok {
			for _, v := range assigned(fn) {
				if vars[v] {
					found = append(found, name+" assigns to the package variable "+v)
				}
			}
		}
	}
	return found
}

// assigned returns the names that a function assigns to and does not declare.
func assigned(fn *ast.FuncDecl) []string {
	local, all := map[string]bool{}, []string{}
	ast.Inspect(fn, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Field:
			for _, id := range n.Names {
				local[id.Name] = true
			}
		case *ast.ValueSpec:
			for _, id := range n.Names {
				local[id.Name] = true
			}
		case *ast.RangeStmt:
			for _, e := range []ast.Expr{n.Key, n.Value} {
				if id, ok := e.(*ast.Ident); ok && n.Tok == token.DEFINE {
					local[id.Name] = true
				}
			}
		case *ast.AssignStmt:
			for _, left := range n.Lhs {
				if id, ok := left.(*ast.Ident); ok {
					if n.Tok == token.DEFINE {
						local[id.Name] = true
					} else {
						all = append(all, id.Name)
					}
				}
			}
		}
		return true
	})
	return slices.DeleteFunc(all, func(name string) bool { return local[name] })
}

// eachGoFile parses every Go file below root, also in nested modules, except in
// folders named testdata.
func eachGoFile(t *testing.T, root string, use func(name string, f *ast.File, fset *token.FileSet)) {
	t.Helper()
	fset := token.NewFileSet()
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == "testdata" || name == filepath.FromSlash("test/cluster/build")) {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(name, ".go") {
			return nil
		}
		f, err := parser.ParseFile(fset, name, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		use(name, f, fset)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestArchitecturePageIsGenerated checks that the table of ARCHITECTURE.md
// equals the one in this file.
func TestArchitecturePageIsGenerated(t *testing.T) {
	const file, begin, end = "ARCHITECTURE.md", "<!-- packages: make golden -->\n", "<!-- packages end -->\n"
	page, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(page), begin)
	old, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no place for the table: %s … %s", file, begin, end)
	}
	table := packageTable(readRooms(t))
	if old == table {
		return
	}
	if !*update {
		t.Fatalf("the table of %s differs from arch_test.go: run make golden", file)
	}
	if err := os.WriteFile(file, []byte(before+begin+table+end+after), 0o644); err != nil {
		t.Fatal(err)
	}
}

func packageTable(rooms map[string]*room) string {
	var b bytes.Buffer
	b.WriteString("| package | what it is | imports (ours) |\n| --- | --- | --- |\n")
	for _, row := range arch {
		uses := row.uses
		if uses == "" {
			uses = "–"
		}
		what := ""
		if r := rooms[row.pkg]; r != nil {
			what = r.synopsis
			if rest, ok := strings.CutPrefix(what, "Package "+path.Base(row.pkg)+" "); ok {
				what = rest
			}
			what = strings.TrimSuffix(what, ".")
		}
		if row.effects == pure {
			what += " (pure)"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", row.pkg, what, uses)
	}
	return b.String()
}
