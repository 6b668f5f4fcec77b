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

	mu      sync.Mutex
	granted bool
	asked   time.Time
}

const (
	// grantedFor and refusedFor are the times for which an answer counts.
	grantedFor, refusedFor = 10 * time.Minute, 10 * time.Second
	// askFor bounds the questions to the API server.
	askFor = 2 * time.Second
)

// Granted reports whether this process may follow pods and change them.
func (p *Permit) Granted(ctx context.Context) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	age := p.Now().Sub(p.asked)
	if !p.asked.IsZero() && (p.granted && age < grantedFor || !p.granted && age < refusedFor) {
		return p.granted
	}
	ctx, cancel := context.WithTimeout(ctx, askFor)
	defer cancel()
	granted, refused := true, p.asked.IsZero() || p.granted
	for _, verb := range []string{"list", "watch", "patch"} {
		may, err := p.may(ctx, verb)
		if err != nil {
			p.Log.Warn("it is not known whether this manager may open the gates of batch pods", "error", err)
			return p.granted
		}
		if !may && refused {
			p.Log.Warn("this manager may not open the gates of batch pods, so pods get none: it needs a right", "verb", verb, "resource", "pods")
		}
		if !may {
			granted = false
			break
		}
	}
	p.granted, p.asked = granted, p.Now()
	return granted
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
