package query

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"tenon.sh/tenon/api/v1alpha1"
	"tenon.sh/tenon/internal/model/node"
)

// TestAQuestionIsBoundToItsNamespace writes queries for labels, pods and names that
// try to end their part of the query.
func TestAQuestionIsBoundToItsNamespace(t *testing.T) {
	series := func(family string, labels ...string) v1alpha1.RequestSeries {
		s := v1alpha1.RequestSeries{Family: family, Labels: map[string]string{}}
		for i := 0; i < len(labels); i += 2 {
			s.Labels[labels[i]] = labels[i+1]
		}
		return s
	}
	for name, tc := range map[string]struct {
		question Question
		series   string // the selector in the query; "": there is no query
	}{
		"plain":                 {Question{"shop", series("rtt_seconds"), []string{"web-0"}}, `rtt_seconds_bucket{le!="",namespace="shop",pod=~"web-0"}`},
		"two pods":              {Question{"shop", series("rtt_seconds"), []string{"web-0", "web.1"}}, `rtt_seconds_bucket{le!="",namespace="shop",pod=~"web-0|web\\.1"}`},
		"labels":                {Question{"shop", series("job:rtt_seconds", "path", `/a"}`, "code", "200"), []string{"web-0"}}, `job:rtt_seconds_bucket{code="200",path="/a\"}",le!="",namespace="shop",pod=~"web-0"}`},
		"another namespace":     {Question{"shop", series("rtt_seconds", "namespace", "bank"), []string{"web-0"}}, `rtt_seconds_bucket{namespace="bank",le!="",namespace="shop",pod=~"web-0"}`},
		"a line in a label":     {Question{"shop", series("rtt_seconds", "a", "x\n\\"), []string{"web-0"}}, `rtt_seconds_bucket{a="x\n\\",le!="",namespace="shop",pod=~"web-0"}`},
		"a pod of all pods":     {Question{"shop", series("rtt_seconds"), []string{".*"}}, `rtt_seconds_bucket{le!="",namespace="shop",pod=~"\\.\\*"}`},
		"a namespace that ends": {Question{`shop"} or up{a="`, series("rtt_seconds"), []string{"web-0"}}, `rtt_seconds_bucket{le!="",namespace="shop\"} or up{a=\"",pod=~"web-0"}`},
		"a query as a name":     {Question{"shop", series("a} or up"), []string{"web-0"}}, ""},
		"a query as a label":    {Question{"shop", series("a", `b="c"} or up{d`, "e"), []string{"web-0"}}, ""},
		"no name":               {Question{"shop", series(""), []string{"web-0"}}, ""},
	} {
		want := ""
		if tc.series != "" {
			want = "sum by (le, pod) (" + tc.series + ") or label_replace(count by (le, pod) (" + tc.series + `), "series", "number", "", "") or min by (pod) (timestamp(` + tc.series + "))"
		}
		if text, is := tc.question.PromQL(); text != want || is != (want != "") {
			t.Errorf("%s: %s, %v\nwant %s", name, text, is, want)
		}
	}
}

// reportOf returns the report of a node with these services, each as
// namespace/pod/family.
func reportOf(services ...string) v1alpha1.NodeReport {
	r := v1alpha1.NodeReport{Status: v1alpha1.NodeReportStatus{Objectives: &v1alpha1.Objectives{}}}
	for _, text := range services {
		part := strings.Split(text, "/")
		s := v1alpha1.ServiceObjective{Namespace: part[0], Pod: part[1]}
		if part[2] != "" {
			s.Requests = &v1alpha1.ServiceRequests{Series: &v1alpha1.RequestSeries{Family: part[2]}}
		}
		r.Status.Objectives.Services = append(r.Status.Objectives.Services, s)
	}
	return r
}

// TestPodsShareQuestions groups services of several nodes. A namespace with many pods
// must not come before all others.
func TestPodsShareQuestions(t *testing.T) {
	var many []string
	for i := range 45 {
		many = append(many, fmt.Sprintf("bank/p-%02d/rtt_seconds", i))
	}
	got := Questions([]v1alpha1.NodeReport{
		reportOf(many...),
		reportOf("shop/web-1/rtt_seconds", "shop/db-0/", "/nginx.service/rtt_seconds", "shop/api-0/api_seconds"),
		reportOf("shop/web-0/rtt_seconds", "shop/web-1/rtt_seconds"),
		{},
	})
	var asked []string
	for _, q := range got {
		asked = append(asked, fmt.Sprintf("%s %s %s+%d", q.Namespace, q.Series.Family, q.Pods[0], len(q.Pods)))
	}
	want := []string{"bank rtt_seconds p-00+20", "shop api_seconds api-0+1", "bank rtt_seconds p-20+20", "shop rtt_seconds web-0+2", "bank rtt_seconds p-40+5"}
	if !slices.Equal(asked, want) {
		t.Errorf("asked\n%s\nwant\n%s", strings.Join(asked, "\n"), strings.Join(want, "\n"))
	}
	long := strings.Repeat("x", 250)
	var names []string
	for i := range 20 {
		names = append(names, fmt.Sprintf("shop/%s%02d/rtt_seconds", long, i))
	}
	if got := Questions([]v1alpha1.NodeReport{reportOf(names...)}); len(got) != 3 || len(got[0].Pods) != 7 {
		t.Errorf("long names make %d questions, the first about %d pods", len(got), len(got[0].Pods))
	}
	for range 40 {
		many = append(many, "evil/x/rtt_seconds")
	}
	r := reportOf(many...)
	if got := Services(&r); len(got) != maxServices {
		t.Errorf("%d services of one node count", len(got))
	}
	want1 := v1alpha1.QueriedService{Namespace: "shop", Pod: "b", Series: got[1].Series, Trouble: "off"}
	if all := (Question{"shop", got[1].Series, []string{"a", "b"}}).Unanswered(node.TroubleOff); len(all) != 2 || !reflect.DeepEqual(all[1], want1) {
		t.Errorf("%+v", all)
	}
}
