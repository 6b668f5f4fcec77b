package telemetry

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tenon.sh/tenon/internal/decide/slo"
	"tenon.sh/tenon/internal/model/node"
)

// TestAnObjectiveHasTheLabelsOfItsPod checks the metrics of three pods and of a
// workload that is no pod. Without a verdict no metric may say 0, which would mean
// that the objective is kept.
func TestAnObjectiveHasTheLabelsOfItsPod(t *testing.T) {
	m := New("test")
	turn := tickAt(1)
	turn.Objectives = map[node.WorkloadID]slo.Judgement{}
	for id, j := range map[node.WorkloadID]slo.Judgement{
		"shop/front":        {Verdict: slo.Missed, Cause: slo.OwnLimit},
		"shop/cart/uid-old": {Verdict: slo.Kept},
		"shop/new":          {Verdict: slo.Undecided, Cause: slo.Unmeasured},
		"system.slice/db":   {Verdict: slo.Kept},
		"shop/fast": {Verdict: slo.Kept, Requests: slo.RequestJudgement{
			Verdict: slo.Kept, Want: node.RequestObjective{Within: [len(node.Percentiles)]time.Duration{0: time.Millisecond, 4: 5 * time.Millisecond}}, Target: 4, Tail: node.Some(4 * time.Millisecond),
		}},
		"shop/mute": {Verdict: slo.Undecided, Cause: slo.NoSource, Requests: slo.RequestJudgement{Verdict: slo.Undecided, Cause: slo.NoSource, Trouble: node.TroubleRedirect}},
	} {
		w := node.Workload{ID: id, Class: node.LS, Pod: strings.HasPrefix(string(id), "shop/")}
		w.Objective.RunQueueDelay = node.Some(time.Millisecond)
		if id == "shop/fast" {
			w.Usage.Requests = node.Requests{At: turn.Snapshot.At, Counts: []uint64{7, 3}, Unsure: 2}
		}
		turn.Snapshot.Workloads, turn.Objectives[id] = append(turn.Snapshot.Workloads, w), j
	}
	turn.Lasted = map[node.WorkloadID]slo.Lasted{"shop/mute": {Kept: 3 * time.Second, Missed: 500 * time.Millisecond, Undecided: time.Minute}}
	m.Observe(turn, nil, time.Second)
	_, text := scrape(t, m, "/metrics")
	for _, want := range []string{
		`tenon_objective_missed{class="LS",namespace="shop",pod="front",workload="shop/front"} 1`,
		`tenon_objective_verdict{cause="own-limit",class="LS",namespace="shop",pod="front",verdict="missed",workload="shop/front"} 1`,
		`tenon_objective_missed{class="LS",namespace="shop",pod="cart",workload="shop/cart/uid-old"} 0`,
		`tenon_objective_verdict{cause="",class="LS",namespace="shop",pod="cart",verdict="kept",workload="shop/cart/uid-old"} 1`,
		`tenon_objective_verdict{cause="unmeasured",class="LS",namespace="shop",pod="new",verdict="undecided",workload="shop/new"} 1`,
		`tenon_objective_missed{class="LS",namespace="",pod="",workload="system.slice/db"} 0`,
		`tenon_objective_verdict_seconds_total{class="LS",namespace="shop",pod="mute",verdict="kept",workload="shop/mute"} 3`,
		`tenon_objective_verdict_seconds_total{class="LS",namespace="shop",pod="mute",verdict="missed",workload="shop/mute"} 0.5`,
		`tenon_objective_verdict_seconds_total{class="LS",namespace="shop",pod="mute",verdict="undecided",workload="shop/mute"} 60`,
		`tenon_request_target_seconds{class="LS",namespace="shop",percentile="p50",pod="fast",workload="shop/fast"} 0.001`,
		`tenon_request_target_seconds{class="LS",namespace="shop",percentile="p99",pod="fast",workload="shop/fast"} 0.005`,
		`tenon_request_latency_seconds{class="LS",namespace="shop",percentile="p99",pod="fast",workload="shop/fast"} 0.004`,
		`tenon_requests_total{class="LS",namespace="shop",pod="fast",time="known",workload="shop/fast"} 10`,
		`tenon_requests_total{class="LS",namespace="shop",pod="fast",time="unknown",workload="shop/fast"} 2`,
		`tenon_request_source_trouble{class="LS",namespace="shop",pod="mute",trouble="redirect",workload="shop/mute"} 1`,
		`tenon_objective_verdict{cause="no-source",class="LS",namespace="shop",pod="mute",verdict="undecided",workload="shop/mute"} 1`,
	} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("the metrics lack %q", want)
		}
	}
	if strings.Contains(text, `tenon_requests_total{class="LS",namespace="shop",pod="mute"`) {
		t.Error("requests that cannot be read are counted")
	}
	if strings.Contains(text, `tenon_objective_missed{class="LS",namespace="shop",pod="new"`) {
		t.Error("an objective without a verdict counts as kept or missed")
	}
}

// TestTheAlertNamesThePod evaluates the alert about objectives with promtool. A
// miss of a minute is no reason for an alert.
func TestTheAlertNamesThePod(t *testing.T) {
	promtool := findPromtool(t)
	rules, err := os.ReadFile(alerts)
	if err != nil {
		t.Fatal(err)
	}
	const tests = `rule_files: [alerts.yaml]
evaluation_interval: 15s
tests:
  - interval: 15s
    input_series:
      - {series: 'tenon_objective_missed{instance="n",workload="shop/front",class="LS",namespace="shop",pod="front"}', values: '0x4 1x20'}
      - {series: 'tenon_objective_missed{instance="n",workload="shop/cart",class="LS",namespace="shop",pod="cart"}', values: '1x4 0x20'}
    alert_rule_test:
      - {eval_time: 2m, alertname: TenonObjectiveMissed, exp_alerts: []}
      - eval_time: 5m
        alertname: TenonObjectiveMissed
        exp_alerts:
          - exp_labels: {severity: warning, instance: n, workload: shop/front, namespace: shop, pod: front}
            exp_annotations:
              summary: shop/front on n has missed its objective for two minutes
              description: Its threads wait longer for a CPU, or its requests take longer, than its objective allows. tenon_objective_verdict has the cause. kubectl tenon explain pod says more; on one machine, tenon status does.
`
	dir := t.TempDir()
	for name, text := range map[string][]byte{"alerts.yaml": rules, "test.yaml": []byte(tests)} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.Command(promtool, "test", "rules", filepath.Join(dir, "test.yaml")).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestTheAlertNamesTheCause lets an objective be missed for two causes, one after the
// other. The alert about the burn rate names the one of the last minutes.
func TestTheAlertNamesTheCause(t *testing.T) {
	promtool := findPromtool(t)
	rules, err := os.ReadFile(alerts)
	if err != nil {
		t.Fatal(err)
	}
	const tests = `rule_files: [alerts.yaml]
evaluation_interval: 1m
tests:
  - interval: 1m
    input_series:
      - {series: 'tenon_objective_missed{instance="n",workload="shop/front",class="LS",namespace="shop",pod="front"}', values: '0x120 1x40 0x40'}
      - {series: 'tenon_objective_verdict{instance="n",workload="shop/front",class="LS",namespace="shop",pod="front",verdict="missed",cause="best-effort"}', values: '_x120 1x20'}
      - {series: 'tenon_objective_verdict{instance="n",workload="shop/front",class="LS",namespace="shop",pod="front",verdict="missed",cause="own-limit"}', values: '_x141 1x20'}
    promql_expr_test:
      - {expr: 'count by (pod, cause) (ALERTS{alertname="TenonObjectiveBurnsFast"})', eval_time: 135m, exp_samples: [{labels: '{pod="front", cause="best-effort"}', value: 1}]}
      - {expr: 'count by (pod, cause) (ALERTS{alertname="TenonObjectiveBurnsFast"})', eval_time: 152m, exp_samples: [{labels: '{pod="front", cause="own-limit"}', value: 1}]}
      - {expr: 'count by (pod, cause) (ALERTS{alertname="TenonObjectiveBurnsFast"})', eval_time: 175m, exp_samples: []}
`
	dir := t.TempDir()
	for name, text := range map[string][]byte{"alerts.yaml": rules, "test.yaml": []byte(tests)} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.Command(promtool, "test", "rules", filepath.Join(dir, "test.yaml")).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
