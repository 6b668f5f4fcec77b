package manager

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"tenon.sh/tenon/api/v1alpha1"
	"tenon.sh/tenon/internal/cluster/promapi"
)

// aPrometheus answers each question about the requests of pods with the same counts.
type aPrometheus struct {
	*httptest.Server
	asked   atomic.Int64
	count   atomic.Int64
	buckets atomic.Int64
}

var askedPods = regexp.MustCompile(`pod=~"([^"]*)"`)

func newPrometheus(t *testing.T) *aPrometheus {
	p := &aPrometheus{}
	p.buckets.Store(2)
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.asked.Add(1)
		var samples []string
		for _, pod := range strings.Split(askedPods.FindStringSubmatch(r.URL.Query().Get("query"))[1], "|") {
			add := func(le string, value any) {
				samples = append(samples, fmt.Sprintf(`{"metric":{"pod":%q%s},"value":[1764460005,"%v"]}`, pod, le, value))
			}
			for i := range p.buckets.Load() - 1 {
				add(fmt.Sprintf(`,"le":"%d"`, i+1), p.count.Load())
			}
			add(`,"le":"+Inf"`, p.count.Load())
			add("", 1764460000+p.count.Load())
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"status":"success","data":{"resultType":"vector","result":[%s]}}`, strings.Join(samples, ","))
	}))
	t.Cleanup(p.Close)
	return p
}

// servedReport returns the report of a node with services, each as namespace/pod/family.
func servedReport(name string, services ...string) v1alpha1.NodeReport {
	r := v1alpha1.NodeReport{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}, Status: v1alpha1.NodeReportStatus{Objectives: objectivesOf(services...)}}
	slim, _ := slimReport(&r)
	return *slim.(*v1alpha1.NodeReport)
}

func objectivesOf(services ...string) *v1alpha1.Objectives {
	o := &v1alpha1.Objectives{Services: []v1alpha1.ServiceObjective{{Namespace: "shop", Pod: "db", State: "Kept"}}}
	for _, text := range services {
		part := strings.Split(text, "/")
		o.Services = append(o.Services, v1alpha1.ServiceObjective{Namespace: part[0], Pod: part[1], State: "Undecided", Requests: &v1alpha1.ServiceRequests{
			Targets: []v1alpha1.RequestTarget{}, Source: "query", State: "Undecided", Series: &v1alpha1.RequestSeries{Family: part[2], Labels: map[string]string{"code": "200"}},
		}})
	}
	return o
}

// reportList lists these reports.
type reportList struct {
	client.Reader
	items []v1alpha1.NodeReport
}

func (l *reportList) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	list.(*v1alpha1.NodeReportList).Items = l.items
	return nil
}

// A roundScene asks a Prometheus server about reports, and keeps the writes.
type roundScene struct {
	t *testing.T
	*requests
	list    reportList
	written map[string]*v1alpha1.Queried
	writes  int
	refuse  error
}

func newRoundScene(t *testing.T, url string) *roundScene {
	s := &roundScene{t: t, written: map[string]*v1alpha1.Queried{}}
	s.requests = newRequests(Options{Prometheus: promapi.Server{URL: url}, Log: slog.New(slog.DiscardHandler)}, &s.list, func(_ context.Context, report string, patch []byte) error {
		if s.refuse != nil {
			return s.refuse
		}
		var p struct{ Status map[string]*v1alpha1.Queried }
		if err := json.Unmarshal(patch, &p); err != nil || len(p.Status) != 1 {
			t.Errorf("wrote %s: %v", patch, err)
		}
		s.written[report] = p.Status["queried"]
		s.writes++
		return nil
	})
	return s
}

// pass makes a round, and returns its number of writes.
func (s *roundScene) pass() int {
	s.t.Helper()
	before := s.writes
	if err := s.round(s.t.Context()); err != nil {
		s.t.Error(err)
	}
	return s.writes - before
}

// troubles returns the troubles of the services of a node, in order.
func (s *roundScene) troubles(report string) (all []string) {
	s.t.Helper()
	if s.written[report] == nil {
		s.t.Fatalf("nothing is written for %s", report)
	}
	for _, one := range s.written[report].Services {
		all = append(all, one.Trouble)
	}
	return all
}

// TestAnswersOfPrometheusReachTheirNodes asks about the services of three nodes, of
// which one has none. A round without news writes nothing.
func TestAnswersOfPrometheusReachTheirNodes(t *testing.T) {
	p := newPrometheus(t)
	p.count.Store(7)
	s := newRoundScene(t, p.URL)
	s.list.items = []v1alpha1.NodeReport{servedReport("a", "shop/web-0/rtt_seconds", "bank/vault-0/rtt_seconds"), servedReport("b", "shop/web-1/rtt_seconds"), servedReport("c")}
	if n := s.pass(); n != 2 || p.asked.Load() != 2 || s.written["c"] != nil {
		t.Errorf("%d writes after %d questions", n, p.asked.Load())
	}
	a, b := s.written["a"].Services, s.written["b"].Services
	if len(a) != 2 || len(b) != 1 || a[0].Pod != "web-0" || a[1].Namespace != "bank" || b[0].Pod != "web-1" || a[0].Series.Labels["code"] != "200" {
		t.Fatalf("wrote %+v and %+v", a, b)
	}
	for _, one := range append(a, b...) {
		if one.Trouble != "" || !one.At.Time.Equal(time.Unix(1764460007, 0)) || !slices.Equal(one.Ends, []string{"1", "+Inf"}) || !slices.Equal(one.Counts, []int64{7, 7}) {
			t.Errorf("wrote %+v", one)
		}
	}
	if n := s.pass(); n != 0 {
		t.Errorf("%d writes without news", n)
	}
	p.count.Add(1)
	if n := s.pass(); n != 2 || s.written["b"].Services[0].Counts[0] != 8 {
		t.Errorf("%d writes of news: %+v", n, s.written["b"])
	}
	s.list.items[1].UID = "again"
	if n := s.pass(); n != 1 {
		t.Errorf("%d writes into a report that was made again", n)
	}
	s.list.items[1] = servedReport("b")
	if n := s.pass(); n != 0 {
		t.Errorf("%d writes into a report without answers", n)
	}
	s.list.items[1].Status.Queried = &v1alpha1.Queried{}
	if n := s.pass(); n != 1 || s.written["b"] != nil {
		t.Errorf("%d writes remove old answers: %+v", n, s.written["b"])
	}
	s.list.items = s.list.items[:1]
	s.pass()
	if len(s.requests.written) != 1 {
		t.Errorf("remembers %v of one node", s.requests.written)
	}
	p.count.Add(1)
	s.refuse = errors.New("refused")
	if err := s.round(t.Context()); !errors.Is(err, s.refuse) {
		t.Errorf("a write that fails: %v", err)
	}
	s.refuse = nil
	if n := s.pass(); n != 1 {
		t.Errorf("%d writes after one that failed", n)
	}
}

// TestTheNextLeaderAnswersAnew lets another replica lead, which knows nothing of the
// answers in the reports. Until it has asked, they stay: each has its time, by which an
// agent knows that it is old. Then it replaces them, and removes those without a service.
func TestTheNextLeaderAnswersAnew(t *testing.T) {
	p := newPrometheus(t)
	p.count.Store(7)
	first := newRoundScene(t, p.URL)
	first.list.items = []v1alpha1.NodeReport{servedReport("a", "shop/web-0/rtt_seconds"), servedReport("b", "shop/web-1/rtt_seconds")}
	first.pass()
	next := newRoundScene(t, p.URL)
	for _, r := range first.list.items {
		r.Status.Queried = first.written[r.Name]
		next.list.items = append(next.list.items, r)
	}
	next.list.items[1].Status.Objectives = nil
	p.count.Store(9)
	if n := next.pass(); n != 2 || next.written["a"].Services[0].Counts[0] != 9 || next.written["b"] != nil {
		t.Errorf("%d writes: %+v", n, next.written)
	}
	p.Close()
	lost := newRoundScene(t, p.URL)
	lost.list.items = next.list.items[:1]
	if err := lost.round(t.Context()); err == nil || lost.troubles("a")[0] != "connect" || len(lost.written["a"].Services[0].Counts) > 0 {
		t.Errorf("without Prometheus: %v, %+v", err, lost.written["a"])
	}
}

// TestAnAnswerThatCannotBeHadHasItsReason asks no server, one that cannot be asked, and
// one that is gone, about too many services, and for too many buckets.
func TestAnAnswerThatCannotBeHadHasItsReason(t *testing.T) {
	p := newPrometheus(t)
	web := servedReport("a", "shop/web-0/rtt_seconds")
	none := newRoundScene(t, "")
	none.list.items = []v1alpha1.NodeReport{web}
	if n, again := none.pass(), none.pass(); n != 1 || again != 0 || none.troubles("a")[0] != "no-prometheus" {
		t.Errorf("without a server: %d writes, then %d: %v", n, again, none.troubles("a"))
	}
	closed := newRoundScene(t, p.URL)
	closed.server.TokenFile = "/none/such"
	closed.list.items = []v1alpha1.NodeReport{web}
	if err := closed.round(t.Context()); err == nil || closed.troubles("a")[0] != "connect" {
		t.Errorf("without a token: %v, %v", err, closed.troubles("a"))
	}
	gone := newRoundScene(t, "http://127.0.0.1:1")
	gone.list.items = []v1alpha1.NodeReport{web}
	if err := gone.round(t.Context()); err == nil || gone.troubles("a")[0] != "connect" {
		t.Errorf("a server that is gone: %v, %v", err, gone.troubles("a"))
	}

	many := newRoundScene(t, p.URL)
	for i := range maxQuestions + 3 {
		many.list.items = append(many.list.items, servedReport(fmt.Sprintf("n%03d", i), fmt.Sprintf("s%03d/web/rtt_seconds", i)))
	}
	asked := p.asked.Load()
	many.pass()
	if n := p.asked.Load() - asked; n != maxQuestions || many.troubles("n000")[0] != "" || many.troubles("n202")[0] != "too-many" {
		t.Errorf("%d questions: %v, %v", n, many.troubles("n000"), many.troubles("n202"))
	}

	var services []string
	for i := range 20 {
		services = append(services, fmt.Sprintf("shop/web-%02d/rtt_seconds", i))
	}
	large := newRoundScene(t, p.URL)
	large.list.items = []v1alpha1.NodeReport{servedReport("a", services...)}
	p.buckets.Store(120)
	large.pass()
	if all := large.troubles("a"); len(all) != 20 || all[15] != "" || all[16] != "too-large" || all[19] != "too-large" {
		t.Errorf("20 services with 120 buckets: %v", all)
	}
}

// TestARoundHasAnEnd asks a server that says nothing more questions than there is time
// for.
func TestARoundHasAnEnd(t *testing.T) {
	t.Parallel() // it waits for most of the time
	silent := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	defer silent.Close()
	s := newRoundScene(t, silent.URL)
	for i := range 100 {
		s.list.items = append(s.list.items, servedReport(fmt.Sprintf("n%02d", i), fmt.Sprintf("s%02d/web/rtt_seconds", i)))
	}
	begun := time.Now()
	if err := s.round(t.Context()); err == nil {
		t.Error("the round succeeded")
	}
	if took := time.Since(begun); took > 2*askFor {
		t.Errorf("the round took %v", took)
	}
	if s.troubles("n00")[0] != "slow" || s.troubles("n99")[0] != "slow" {
		t.Errorf("%v, %v", s.troubles("n00"), s.troubles("n99"))
	}
}

// TestTheReportHasWhatPrometheusSays runs a manager at a real API server. The agent and
// the manager write the same report, and neither removes a part of the other.
func TestTheReportHasWhatPrometheusSays(t *testing.T) {
	s := newScene(t)
	p := newPrometheus(t)
	p.count.Store(3)
	s.start(func(o *Options) { o.Prometheus.URL, o.rounds = p.URL, 50*time.Millisecond })
	s.node("n1")
	s.report("n1", batchOf(4000, 4))
	state := func(o *v1alpha1.Objectives) {
		t.Helper()
		var r v1alpha1.NodeReport
		s.must(s.client.Get(s.ctx, client.ObjectKey{Name: "n1"}, &r))
		old := r.DeepCopy()
		r.Status.Objectives = o
		s.must(s.client.Status().Patch(s.ctx, &r, client.MergeFrom(old), client.FieldOwner("tenond")))
	}
	queried := func() *v1alpha1.Queried {
		t.Helper()
		var r v1alpha1.NodeReport
		s.must(s.client.Get(s.ctx, client.ObjectKey{Name: "n1"}, &r))
		return r.Status.Queried
	}
	state(objectivesOf("shop/web/rtt_seconds"))
	has := func(count int64) func() bool {
		return func() bool {
			q := queried()
			return q != nil && len(q.Services) == 1 && q.Services[0].Pod == "web" && slices.Equal(q.Services[0].Counts, []int64{count, count})
		}
	}
	s.waitUntil("the answer is in the report", soon, has(3))
	s.becomes("n1", "5200m "+mem4, soon)
	s.waitUntil("the amounts are in the report", soon, func() bool { return s.publishedPart("n1").CPU != nil })
	p.count.Store(4)
	s.report("n1", batchOf(8000, 4))
	s.becomes("n1", "1200m "+mem4, now)
	s.waitUntil("the next answer is in the report", soon, has(4))
	if s.publishedPart("n1").CPU == nil {
		t.Error("the answer removed the amounts")
	}
	state(nil)
	s.waitUntil("the answers go with the objective", soon, func() bool { return queried() == nil })
}

// TestANamespaceUsesNotAllBuckets has a namespace with many large histograms on the node
// of a service of another namespace.
func TestANamespaceUsesNotAllBuckets(t *testing.T) {
	p := newPrometheus(t)
	p.buckets.Store(128)
	s := newRoundScene(t, p.URL)
	var all []string
	for i := range 30 {
		all = append(all, fmt.Sprintf("crowd/web-%02d/rtt_seconds", i))
	}
	s.list.items = []v1alpha1.NodeReport{servedReport("a", append(all, "shop/web-0/rtt_seconds")...)}
	s.pass()
	troubles := s.troubles("a")
	if len(troubles) != 31 || troubles[30] != "" || troubles[0] != "" || troubles[29] == "" {
		t.Errorf("the troubles are %q", troubles)
	}
}
