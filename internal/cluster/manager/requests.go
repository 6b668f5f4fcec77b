package manager

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"tenon.sh/tenon/api/v1alpha1"
	"tenon.sh/tenon/internal/cluster/promapi"
	"tenon.sh/tenon/internal/cluster/query"
	"tenon.sh/tenon/internal/decide/share"
	"tenon.sh/tenon/internal/model/node"
)

const (
	// askEvery is the time from the end of a round of questions to Prometheus to the
	// next one. A round takes at most askFor, and has at most maxQuestions questions.
	askEvery     = 15 * time.Second
	askFor       = 10 * time.Second
	maxQuestions = 200
	// maxNodeBuckets is the number of buckets in the answers for one node, because
	// they are written into its report.
	maxNodeBuckets = 2000
)

// requests asks Prometheus about the services whose objective has the source query,
// and writes the answers into status.queried of the report of their node. Only the
// replica that leads does so.
type requests struct {
	server  promapi.Server
	reports client.Reader
	write   func(ctx context.Context, report string, patch []byte) error
	asked   *prometheus.CounterVec
	log     *slog.Logger
	every   time.Duration

	written map[string]writtenAnswers // by node
	failed  string                    // the last trouble that the log has
}

// writtenAnswers are the last answers for a node that this process has written into
// the report with this UID.
type writtenAnswers struct {
	report types.UID
	text   string
}

// newRequests returns the requests of a manager. write applies a merge patch to the
// status of a report.
func newRequests(o Options, reports client.Reader, write func(ctx context.Context, report string, patch []byte) error) *requests {
	return &requests{
		server: o.Prometheus, reports: reports, write: write, log: o.Log, every: cmp.Or(o.rounds, askEvery), written: map[string]writtenAnswers{},
		asked: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tenon_manager_prometheus_answers_total", Help: "Answers about the requests of a pod, by the trouble with them; ok: none.",
		}, []string{"trouble"}),
	}
}

// NeedLeaderElection makes only the replica that leads call Start.
func (r *requests) NeedLeaderElection() bool { return true }

// Start asks until ctx ends.
func (r *requests) Start(ctx context.Context) error {
	for {
		if err := r.round(ctx); err != nil && ctx.Err() == nil && err.Error() != r.failed {
			r.failed = err.Error()
			r.log.Warn("not all requests of services are known from Prometheus; tried again", "err", err)
		} else if err == nil {
			r.failed = ""
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(r.every):
		}
	}
}

// round asks about all services once. It returns the first error of a question, and
// all errors of writes.
func (r *requests) round(ctx context.Context) error {
	var list v1alpha1.NodeReportList
	if err := r.reports.List(ctx, &list); err != nil {
		return fmt.Errorf("list the reports of the nodes: %w", err)
	}
	found, failed := r.ask(ctx, query.Questions(list.Items))
	gone := maps.Clone(r.written)
	for i := range list.Items {
		report := &list.Items[i]
		delete(gone, report.Name)
		failed = errors.Join(failed, r.tell(ctx, report, found))
	}
	for name := range gone {
		delete(r.written, name)
	}
	return failed
}

// A servedPod is a pod of which one histogram is read.
type servedPod struct{ namespace, pod, series string }

func podOf(s v1alpha1.QueriedService) servedPod {
	series, _ := json.Marshal(s.Series) //nolint:errcheck // text and a map of text can always be encoded
	return servedPod{s.Namespace, s.Pod, string(series)}
}

// ask asks some questions at a time, and returns the answers.
func (r *requests) ask(ctx context.Context, questions []query.Question) (found map[servedPod]v1alpha1.QueriedService, failed error) {
	found = map[servedPod]v1alpha1.QueriedService{}
	var mu sync.Mutex
	take := func(q query.Question, all []v1alpha1.QueriedService, err error) {
		mu.Lock()
		defer mu.Unlock()
		if err != nil && failed == nil {
			failed = fmt.Errorf("ask Prometheus for %s of %d pods in namespace %s: %w", q.Series.Family, len(q.Pods), q.Namespace, err)
		}
		for _, s := range all {
			found[podOf(s)] = s
			r.asked.WithLabelValues(cmp.Or(s.Trouble, "ok")).Inc()
		}
	}
	refuse := func(questions []query.Question, why node.SourceTrouble) {
		for _, q := range questions {
			take(q, q.Unanswered(why), nil)
		}
	}
	if r.server.URL == "" {
		refuse(questions, node.TroubleNoPrometheus)
		return found, nil
	}
	if len(questions) > maxQuestions {
		refuse(questions[maxQuestions:], node.TroubleTooMany)
		questions = questions[:maxQuestions]
	}
	if len(questions) == 0 {
		return found, nil
	}
	c, err := r.server.Open()
	if err != nil {
		refuse(questions, node.TroubleConnect)
		return found, err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(ctx, askFor)
	defer cancel()
	next := make(chan query.Question)
	var asking sync.WaitGroup
	for range min(promapi.AtOnce, len(questions)) {
		asking.Go(func() {
			for q := range next {
				all, err := query.Ask(ctx, c, q)
				take(q, all, err)
			}
		})
	}
	for _, q := range questions {
		next <- q
	}
	close(next)
	asking.Wait()
	return found, failed
}

// patchReport applies a merge patch to the status of a report. A report that is gone
// needs none.
func patchReport(c client.Client) func(ctx context.Context, report string, patch []byte) error {
	return func(ctx context.Context, report string, patch []byte) error {
		object := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "NodeReport"}, ObjectMeta: metav1.ObjectMeta{Name: report}}
		return client.IgnoreNotFound(c.Status().Patch(ctx, object, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(Owner)))
	}
}

// tell writes the answers for a node into its report, if they have changed.
func (r *requests) tell(ctx context.Context, report *v1alpha1.NodeReport, found map[servedPod]v1alpha1.QueriedService) error {
	services := query.Services(report)
	left := maxNodeBuckets
	// A namespace with large histograms must not use up the buckets of the others.
	for _, i := range share.Turns(services, func(s v1alpha1.QueriedService) string { return s.Namespace }) {
		s := services[i]
		if answer, has := found[podOf(s)]; has {
			services[i] = answer
		}
		if left -= len(services[i].Ends); left < 0 {
			left = 0
			s.Trouble = string(node.TroubleTooLarge)
			services[i] = s
		}
	}
	before := r.written[report.Name]
	if before.report != report.UID {
		before = writtenAnswers{report: report.UID}
	}
	var all *v1alpha1.Queried
	if len(services) > 0 {
		all = &v1alpha1.Queried{Services: services}
	}
	text, err := json.Marshal(map[string]any{"status": map[string]any{"queried": all}})
	switch {
	case err != nil:
		return err
	case all == nil && report.Status.Queried == nil, string(text) == before.text:
		return nil
	}
	if err := r.write(ctx, report.Name, text); err != nil {
		return fmt.Errorf("write what Prometheus says into the report of node %s: %w", report.Name, err)
	}
	before.text = string(text)
	r.written[report.Name] = before
	return nil
}
