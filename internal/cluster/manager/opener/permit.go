package opener

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// A Permit knows whether this process may open gates. A pod must not get a gate that
// nothing can open.
type Permit struct {
	API client.Client
	Log *slog.Logger
	Now func() time.Time

	asks sync.Mutex // one question at a time
	mu   sync.Mutex // of the fields below
	permission
}

// A permission is an answer of the API server. The zero permission is none.
type permission struct {
	granted, known bool
	until          time.Time // it counts until then
}

const (
	// grantedFor and refusedFor are the times for which an answer counts. The last one
	// counts for refusedFor, too, after a question without an answer.
	grantedFor, refusedFor = 10 * time.Minute, 10 * time.Second
	// askFor bounds the questions to the API server.
	askFor = 2 * time.Second
)

// Granted reports whether this process may follow pods and change them. While another
// call asks, the last answer counts; only the first calls wait, for askFor at most.
func (p *Permit) Granted(ctx context.Context) bool {
	last := p.last()
	switch {
	case p.Now().Before(last.until):
		return last.granted
	case !last.until.IsZero() && !p.asks.TryLock():
		return last.granted
	case last.until.IsZero():
		p.asks.Lock()
	}
	defer p.asks.Unlock()
	if last = p.last(); p.Now().Before(last.until) {
		return last.granted // another call has just asked
	}
	next := p.ask(ctx, last)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.permission = next
	return next.granted
}

func (p *Permit) last() permission {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.permission
}

// ask asks the API server. The answer counts for other calls, so it does not depend on
// the end of this one.
func (p *Permit) ask(ctx context.Context, last permission) permission {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askFor)
	defer cancel()
	for _, verb := range []string{"list", "watch", "patch"} {
		may, err := p.may(ctx, verb)
		if err != nil {
			p.Log.Warn("it is not known whether this manager may open the gates of batch pods", "error", err)
			last.until = p.Now().Add(refusedFor)
			return last
		}
		if !may {
			if last.granted || !last.known {
				p.Log.Warn("this manager may not open the gates of batch pods, so pods get none: it needs a right", "verb", verb, "resource", "pods")
			}
			return permission{known: true, until: p.Now().Add(refusedFor)}
		}
	}
	return permission{granted: true, known: true, until: p.Now().Add(grantedFor)}
}

func (p *Permit) may(ctx context.Context, verb string) (bool, error) {
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: verb, Resource: "pods"},
	}}
	if err := p.API.Create(ctx, review); err != nil {
		return false, fmt.Errorf("ask for the right to %s pods: %w", verb, err)
	}
	return review.Status.Allowed, nil
}
