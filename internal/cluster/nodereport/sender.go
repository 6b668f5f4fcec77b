package nodereport

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"tenon.sh/tenon/api/v1alpha1"
	"tenon.sh/tenon/internal/cluster/apiserver"
)

const (
	// Owner is the field manager of the agent's part of a report.
	Owner = "tenond"
	// longestWait is the maximum time between two attempts to send.
	longestWait = 30 * time.Second
	// fieldsLast is how long the fields of an older CustomResourceDefinition count.
	// Then the whole report is tried again.
	fieldsLast = 5 * time.Minute
)

// reportKind is the kind of the reports.
var reportKind = v1alpha1.GroupVersion.WithKind("NodeReport")

// An Applier makes server-side applies, and knows which fields a kind has.
// apiserver.Client implements it.
type Applier interface {
	Apply(ctx context.Context, path, owner string, object any) error
	Fields(ctx context.Context, kind schema.GroupVersionKind) (*apiserver.Fields, error)
}

// A Sender sends the reports of one node. If a report still waits, a newer
// report replaces it. Offer never blocks.
type Sender struct {
	api  Applier
	node string
	uid  func() types.UID // UID of the node; empty: not known
	log  *slog.Logger
	next chan v1alpha1.NodeReportStatus

	fields  *apiserver.Fields // of an older CustomResourceDefinition; nil: all fields
	asked   time.Time
	dropped []string // the fields that the last report lacked for that reason
}

// NewSender returns the sender for the reports of a node. uid returns the UID
// of the node. The node owns its report, so that Kubernetes deletes both
// together.
func NewSender(api Applier, node string, uid func() types.UID, log *slog.Logger) *Sender {
	return &Sender{api: api, node: node, uid: uid, log: log, next: make(chan v1alpha1.NodeReportStatus, 1)}
}

// Offer sets the report that is sent next. Only one goroutine may call it.
func (s *Sender) Offer(status v1alpha1.NodeReportStatus) {
	select {
	case <-s.next:
	default:
	}
	s.next <- status
}

// Run sends reports until ctx ends.
func (s *Sender) Run(ctx context.Context) {
	failed := ""
	for {
		var status v1alpha1.NodeReportStatus
		select {
		case <-ctx.Done():
			return
		case status = <-s.next:
		}
		for p := (retryDelay{}); ; {
			err := s.send(ctx, status)
			if ctx.Err() != nil {
				return
			}
			if err == nil {
				break
			}
			if text := err.Error(); text != failed {
				s.log.Warn("the report of this node is not sent; tried again", "error", err)
				failed = text
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(jittered(p.delayAfter(err))):
			}
			select {
			case status = <-s.next: // a newer report
			default:
			}
		}
		if failed != "" {
			s.log.Info("the report of this node is sent again")
			failed = ""
		}
	}
}

// A retryDelay computes the waits between attempts. Each wait is longer than
// the last one, up to longestWait.
type retryDelay struct {
	wait   time.Duration
	denied bool
}

// delayAfter returns how long to wait after an attempt that failed with err. At
// the first denial by the API server, the waits begin again with the shortest
// wait. An API server that has just started denies all requests in its first
// seconds, until it has read the roles.
func (p *retryDelay) delayAfter(err error) time.Duration {
	if apiserver.Denied(err) && !p.denied {
		p.wait, p.denied = 0, true
	}
	p.wait = min(max(2*p.wait, time.Second), longestWait)
	return p.wait
}

// jittered changes a wait by up to a fifth. Without this, the agents of all
// nodes would send in the same second after an outage of the API server.
func jittered(wait time.Duration) time.Duration {
	return time.Duration(float64(wait) * (0.8 + 0.4*rand.Float64()))
}

// An appliedReport is a report with only the fields that the agent applies.
type appliedReport struct {
	APIVersion string         `json:"apiVersion"`
	Kind       string         `json:"kind"`
	Metadata   appliedMeta    `json:"metadata"`
	Status     map[string]any `json:"status,omitempty"`
}

type appliedMeta struct {
	Name            string                  `json:"name"`
	OwnerReferences []metav1.OwnerReference `json:"ownerReferences,omitempty"`
}

// send applies the status. It first creates a missing report.
func (s *Sender) send(ctx context.Context, status v1alpha1.NodeReportStatus) error {
	path := fmt.Sprintf("/apis/%s/nodereports/%s", v1alpha1.GroupVersion, s.node)
	report := appliedReport{APIVersion: v1alpha1.GroupVersion.String(), Kind: "NodeReport", Metadata: appliedMeta{Name: s.node}}
	declare := func() error {
		fields, err := withoutEmpty(status) // declare drops fields of it
		if err != nil {
			return fmt.Errorf("apply %s: %w", path, err)
		}
		report.Status = fields
		return s.declare(ctx, path+"/status", report)
	}
	err := declare()
	if !errors.Is(err, apiserver.ErrAbsent) {
		return err
	}
	report.Status = nil
	if uid := s.uid(); uid != "" {
		report.Metadata.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: s.node, UID: uid}}
	}
	if err := s.api.Apply(ctx, path, Owner, report); err != nil {
		return err
	}
	report.Metadata.OwnerReferences = nil
	return declare()
}

// declare applies a report. An agent may be newer than the CustomResourceDefinition of
// the reports: the API server then refuses the whole report for each field that it does
// not know. A node without reports would lose its batch resources, so these fields are
// left out.
func (s *Sender) declare(ctx context.Context, path string, report appliedReport) error {
	if time.Since(s.asked) > fieldsLast {
		s.fields = nil
	}
	whole := map[string]any{"status": report.Status}
	var dropped []string
	if s.fields != nil {
		dropped = s.fields.Drop(whole)
		prune(report.Status) // an object of which all fields were dropped
	}
	err := s.api.Apply(ctx, path, Owner, report)
	if apiserver.Refused(err) {
		known, unknown := s.api.Fields(ctx, reportKind)
		if unknown != nil {
			return errors.Join(err, unknown)
		}
		more := known.Drop(whole)
		if len(more) == 0 {
			return err // for another reason
		}
		prune(report.Status)
		s.fields, s.asked, dropped = known, time.Now(), append(dropped, more...)
		err = s.api.Apply(ctx, path, Owner, report)
	}
	if err != nil {
		return err
	}
	switch {
	case len(dropped) == 0 && len(s.dropped) > 0:
		s.log.Info("the report of this node has all fields again")
	case !slices.Equal(dropped, s.dropped):
		s.log.Warn("the CustomResourceDefinition of the reports is older than tenond: apply that of this release (docs/upgrade.md); the report lacks fields", "fields", dropped)
	}
	s.dropped = dropped
	return nil
}

// withoutEmpty converts a status to a map without empty fields. If a field was
// in the agent's last report and is missing now, the API server removes it. For
// an empty object, the API server would store null.
func withoutEmpty(status v1alpha1.NodeReportStatus) (map[string]any, error) {
	text, err := json.Marshal(status)
	if err != nil {
		return nil, err
	}
	var fields map[string]any
	if err := json.Unmarshal(text, &fields); err != nil {
		return nil, err
	}
	prune(fields)
	return fields, nil
}

// prune removes null values and empty objects, recursively.
func prune(fields map[string]any) {
	for key, v := range fields {
		inner, is := v.(map[string]any)
		if is {
			prune(inner)
		}
		if v == nil || is && len(inner) == 0 {
			delete(fields, key)
		}
	}
}
