package telemetry

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// An alertCase says when an alert fires. Series are in the notation of promtool:
// 1x5 is a value and five more of it, one for each minute. The alert must be
// quiet at the minute quiet, and fire at the minute fires.
type alertCase struct {
	alert        string
	series       map[string]string
	quiet, fires int
}

// histogram returns the series of a histogram in which half of the observations
// are slower than the bound, from minute 20 on.
func histogram(name, bound string) map[string]string {
	return map[string]string{
		fmt.Sprintf(name, bound):  "0+60x20 1200+30x40",
		fmt.Sprintf(name, "1"):    "0+60x60",
		fmt.Sprintf(name, "+Inf"): "0+60x60",
	}
}

// burning returns the series of an objective that is kept for some minutes, and then
// missed.
func burning(kept, missed int) map[string]string {
	const of = `{workload="shop/web-0",namespace="shop",pod="web-0",instance="a"`
	return map[string]string{
		"tenon_objective_missed" + of + "}":                                       fmt.Sprintf("0x%d 1x%d", kept, missed),
		"tenon_objective_verdict" + of + `,verdict="kept",cause=""}`:              fmt.Sprintf("1x%d stale", kept),
		"tenon_objective_verdict" + of + `,verdict="missed",cause="best-effort"}`: fmt.Sprintf("_x%d 1x%d", kept, missed),
	}
}

var alertCases = []alertCase{
	{"TenondDown", map[string]string{`up{job="tenond",instance="a"}`: "1x10 0x20"}, 11, 15},
	{"TenondLoopStalled", map[string]string{"tenon_last_tick_timestamp_seconds": "0+60x20 1200x20"}, 20, 26},
	{"TenondBlind", map[string]string{`tenon_ticks_total{outcome="blind"}`: "0x20 0+5x30"}, 20, 35},
	{"TenonTrouble", map[string]string{`tenon_trouble{kind="config"}`: "0x20 1x20"}, 20, 22},
	{"TenonKnobFailing", map[string]string{"tenon_knobs_failing": "0x20 2x30"}, 22, 40},
	{"TenonBestEffortStarved", map[string]string{`tenon_be_cpu_limit_cores{knob="cpu.max"}`: "2x20 0.1x120", "tenon_node_cpus": "8x140", `tenon_workloads{class="BE"}`: "3x140"}, 70, 95},
	{"TenonEvicts", map[string]string{`tenon_evictions_total{reason="memory"}`: "0x20 1x40"}, 20, 22},
	{"TenonFrozenForLong", map[string]string{"tenon_workloads_frozen": "0x20 1x30"}, 25, 35},
	{"TenonTickSlow", histogram(`tenon_tick_duration_seconds_bucket{part="act",le="%s"}`, "0.1"), 20, 45},
	{"TenonReactionSlow", histogram(`tenon_reaction_seconds_bucket{kind="delay",le="%s"}`, "0.1"), 20, 45},
	{"TenonBatchDegraded", map[string]string{`tenon_batch_degraded{resource="cpu"}`: "0x20 1x20"}, 23, 28},
	{"TenonIsolationMechanismDown", map[string]string{`tenon_isolation_mechanism_down{mechanism="m"}`: "0x20 1x20"}, 20, 22},
	{"TenonIsolationMechanismFailed", map[string]string{`tenon_isolation_mechanism_failures{mechanism="m"}`: "0x20 1x20"}, 20, 22},
	{"TenonObjectiveMissed", map[string]string{`tenon_objective_missed{workload="shop/web-0",namespace="shop",pod="web-0",instance="a"}`: "0x20 1x30"}, 21, 25},
	{"TenonObjectiveBurnsFast", burning(120, 30), 125, 132},
	{"TenonObjectiveBurnsSlowly", burning(370, 40), 385, 396},
	{"TenonLimitDoesNotFit", map[string]string{`tenon_cpu_misfit{workload="w",kind="threads"}`: "0x20 1x30"}, 28, 40},
	{"TenonBestEffortWaitsForLong", map[string]string{"tenon_scheduler_oldest_wait_seconds": "1x20 16x20"}, 20, 22},

	{"TenonManagerDown", map[string]string{`up{job="tenon-manager",instance="a"}`: "1x20 0x30", `up{job="tenon-manager",instance="b"}`: "0x50"}, 20, 30},
	{"TenonManagerDown", map[string]string{`up{job="tenon-manager",instance="a"}`: "1x20 stale", `up{job="tenond"}`: "1x50"}, 20, 30},
	{"TenonManagerReplicaDown", map[string]string{`up{job="tenon-manager",instance="a"}`: "1x20 0x30", `up{job="tenon-manager",instance="b"}`: "1x50"}, 30, 40},
	{"TenonManagerLeaderless", map[string]string{`leader_election_master_status{job="tenon-manager",instance="a"}`: "1x20 0x30", `leader_election_master_status{job="tenon-manager",instance="b"}`: "0x50"}, 22, 30},
	// A life of 900 minutes, renewed after 600: at minute 675, a quarter of the rest is over.
	{"TenonCertificateNotRenewed", map[string]string{"tenon_manager_certificate_expiry_timestamp_seconds": "54000x800", "tenon_manager_certificate_renewal_timestamp_seconds": "36000x800"}, 670, 690},
	{"TenonNoCertificate", map[string]string{"tenon_manager_certificate_expiry_timestamp_seconds": "54000x20 0x30", "tenon_manager_certificate_renewal_timestamp_seconds": "36000x20 0x30"}, 22, 30},
	{"TenonPodsMissed", map[string]string{`tenon_manager_missed_pods{profile="spark",instance="a"}`: "0x20 3x30"}, 25, 35},
	{"TenonConfigMissing", map[string]string{`tenon_manager_config_missing{instance="a"}`: "0x20 1x30"}, 20, 25},
	{"TenonReportsRefused", map[string]string{`tenon_manager_nodes{state="stale"}`: "0x20 2x40", `tenon_manager_nodes{state="published"}`: "5x60"}, 30, 45},
	{"TenonNodeWritesFail", map[string]string{`tenon_manager_node_writes_total{change="failed"}`: "0x20 0+2x60", `tenon_manager_node_writes_total{change="more"}`: "0+1x80"}, 20, 60},
	{"TenonPrometheusFails", map[string]string{
		`tenon_manager_prometheus_answers_total{trouble="ok",instance="a"}`: "0+4x20 80x60", `tenon_manager_prometheus_answers_total{trouble="absent",instance="a"}`: "0+1x80",
		`tenon_manager_prometheus_answers_total{trouble="connect",instance="a"}`: "0x20 0+4x60",
	}, 24, 40},
	{"TenonSchedulerDown", map[string]string{`up{job="tenon-scheduler"}`: "1x20 stale", `tenon_manager_scheduler_expected{instance="a"}`: "1x60", `tenon_manager_scheduler_expected{instance="b"}`: "1x60"}, 20, 35},
	{"TenonSchedulerLeaderless", map[string]string{`leader_election_master_status{job="tenon-scheduler"}`: "1x20 0x30"}, 22, 30},
}

// healthy are series of a cluster without a fault: no alert fires in 120 minutes.
// No job scrapes tenon-scheduler, and some series are those of other programs.
var healthy = map[string]string{
	`up{job="tenond",instance="a"}`: "1x120", `up{job="tenon-manager",instance="a"}`: "1x120", `up{job="tenon-manager",instance="b"}`: "1x120",
	// The series of one pod does not exist, and another cluster has no Prometheus server.
	`tenon_manager_prometheus_answers_total{trouble="ok",instance="a"}`: "0+4x120", `tenon_manager_prometheus_answers_total{trouble="absent",instance="a"}`: "0+1x120",
	`tenon_manager_prometheus_answers_total{trouble="no-prometheus",instance="b"}`: "0+4x120",
	"tenon_last_tick_timestamp_seconds":                                            "0+60x120", `tenon_ticks_total{outcome="ok"}`: "0+60x120", `tenon_trouble{kind="config"}`: "0x120",
	`leader_election_master_status{job="tenon-manager",instance="a"}`: "0x120", `leader_election_master_status{job="tenon-manager",instance="b"}`: "1x120",
	`leader_election_master_status{job="kube-scheduler"}`: "0x120",
	// Each hour, the certificate with a life of 180 minutes is renewed.
	"tenon_manager_certificate_expiry_timestamp_seconds": "10800x60 14400x60", "tenon_manager_certificate_renewal_timestamp_seconds": "7200x60 10800x60",
	`tenon_manager_missed_pods{profile="p"}`: "0x120", "tenon_manager_config_missing": "0x120", `tenon_manager_nodes{state="stale"}`: "0x120", `tenon_manager_nodes{state="off"}`: "3x120",
	`tenon_manager_node_writes_total{change="failed"}`: "4x120", "tenon_manager_scheduler_expected": "1x120", `tenon_be_cpu_limit_cores{knob="cpu.max"}`: "4x120", "tenon_node_cpus": "8x120",
}

// TestEachAlertFires evaluates every alert with promtool, before and after its
// fault begins, and on a healthy cluster.
func TestEachAlertFires(t *testing.T) {
	promtool := findPromtool(t)
	dir := t.TempDir()
	left := map[string]bool{}
	for _, file := range []string{alerts, cluster} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`alert: (\w+)`).FindAllStringSubmatch(string(text), -1) {
			left[m[1]] = true
		}
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(file)), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var tests strings.Builder
	tests.WriteString("rule_files: [alerts.yaml, cluster-alerts.yaml]\nevaluation_interval: 1m\ntests:\n")
	begin := func(name string, series map[string]string) {
		fmt.Fprintf(&tests, "- name: %q\n  interval: 1m\n  input_series:\n", name)
		for _, s := range slices.Sorted(maps.Keys(series)) {
			fmt.Fprintf(&tests, "  - {series: %q, values: %q}\n", s, series[s])
		}
		tests.WriteString("  promql_expr_test:\n")
	}
	firing := func(alert string, minute, number int) {
		samples := ""
		if number > 0 {
			samples = fmt.Sprintf("{labels: '{}', value: %d}", number)
		}
		fmt.Fprintf(&tests, "  - {expr: 'count(ALERTS{%salertstate=\"firing\"})', eval_time: %dm, exp_samples: [%s]}\n", alert, minute, samples)
	}
	for i, c := range alertCases {
		if !left[c.alert] && !slices.ContainsFunc(alertCases[:i], func(o alertCase) bool { return o.alert == c.alert }) {
			t.Errorf("there is no alert %s", c.alert)
		}
		delete(left, c.alert)
		begin(c.alert, c.series)
		firing(`alertname="`+c.alert+`",`, c.quiet, 0)
		firing(`alertname="`+c.alert+`",`, c.fires, 1)
	}
	begin("healthy", healthy)
	for _, minute := range []int{5, 30, 59, 65, 119} {
		firing("", minute, 0)
	}
	for alert := range left {
		t.Errorf("no case lets alert %s fire", alert)
	}
	file := filepath.Join(dir, "test.yaml")
	if err := os.WriteFile(file, []byte(tests.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(promtool, "test", "rules", file).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestThePageListsEachAlert checks that docs/metrics.md names all alerts, and no
// other.
func TestThePageListsEachAlert(t *testing.T) {
	page, err := os.ReadFile("../../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| `(Tenon\\w+)` \\|").FindAllStringSubmatch(string(page), -1) {
		listed[m[1]] = true
	}
	for _, file := range []string{alerts, cluster} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`alert: (\w+)`).FindAllStringSubmatch(string(text), -1) {
			if !listed[m[1]] {
				t.Errorf("docs/metrics.md does not list %s", m[1])
			}
			delete(listed, m[1])
		}
	}
	for name := range listed {
		t.Errorf("docs/metrics.md lists %s, which does not exist", name)
	}
}
