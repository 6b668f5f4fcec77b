package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"tenon.sh/tenon/internal/cluster/manifest"
	"tenon.sh/tenon/internal/cluster/podpages"
	"tenon.sh/tenon/internal/cluster/schedulers"
)

// admit asks the API server about one pod of each manifest. It also reads the
// state of the schedulers of these pods, and whether Tenon's webhooks run.
func (a *access) admit(ctx context.Context, all *manifest.Set, by podpages.Webhook, now time.Time) ([]schedulers.Scheduler, error) {
	var said warnings
	c, err := a.strictClient(&said)
	if err != nil {
		return nil, err
	}
	var names []string
	for i := range all.Wanted {
		w := &all.Wanted[i]
		draft := all.Draft(w)
		w.Admission = ask(ctx, c, draft, &said)
		if w.Admission.Pod != nil {
			// The API server decides at random whether it applies a profile with a
			// probability. The pages always apply such a profile.
			if drawn := by.Drawn(draft, w.Admission.Pod); drawn != nil {
				w.Admission = ask(ctx, c, drawn, &said)
			}
		}
		if made := all.Pending(w); w.Admission.Refused != "" && made != "" {
			w.Admission = manifest.Admission{Unasked: fmt.Sprintf("admission of %s, because the manifests create %s (%s)", w.Name, made, w.Admission.Refused)}
		}
		pod := &w.Pod
		if w.Admission.Pod != nil {
			pod = w.Admission.Pod
		}
		if w.Admission.Refused == "" && pod.Spec.NodeName == "" {
			names = append(names, schedulers.Of(pod))
		}
	}
	absent, unknown := managerAbsence(ctx, c, now)
	for i := range all.Wanted {
		w := &all.Wanted[i]
		w.NoManager = absent
		switch {
		case absent != "" && w.Admission.Refused == "":
			w.Admission.Silent = "the answer of Tenon's webhooks, because " + absent
		case unknown != "" && w.Admission.Pod != nil:
			w.Admission.Silent = "whether tenon-manager runs, and its webhooks have answered: " + unknown
		}
	}
	slices.Sort(names)
	return schedulersOf(ctx, c, slices.Compact(names), now), nil
}

// ask asks the API server to create a pod without storing it (a dry run).
func ask(ctx context.Context, c client.Client, draft *corev1.Pod, said *warnings) manifest.Admission {
	*said = nil
	p := draft.DeepCopy()
	err := c.Create(ctx, p, client.DryRunAll)
	about := "admission in namespace " + draft.Namespace
	switch {
	case err == nil:
		return manifest.Admission{Pod: p, Warnings: slices.Clone(*said)}
	case apierrors.IsForbidden(err) && !mayCreate(ctx, c, draft.Namespace, err):
		return manifest.Admission{Unasked: about + ", because you may not create pods there"}
	case !isVerdict(err):
		return manifest.Admission{Unasked: fmt.Sprintf("%s (%v)", about, err)}
	case apierrors.IsAlreadyExists(err):
		return manifest.Admission{Refused: fmt.Sprintf("%v (kubectl tenon explain pod %s/%s says where it is)", err, draft.Namespace, draft.Name)}
	}
	return manifest.Admission{Refused: err.Error()}
}

// mayCreate reports whether the user may create pods. The status of a refusal
// does not show this, because a quota causes the same status.
func mayCreate(ctx context.Context, c client.Client, namespace string, refusal error) bool {
	review := authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: namespace, Verb: "create", Resource: "pods"},
	}}
	if err := c.Create(ctx, &review); err != nil {
		return !strings.Contains(refusal.Error(), "cannot create resource") // the words of the authorizer
	}
	return review.Status.Allowed
}

// isVerdict reports whether an error is the API server's answer to the pod.
// Busy servers and webhooks without dry runs give no answer. If a required
// webhook fails (status 500), that is an answer: the pod cannot be created.
func isVerdict(err error) bool {
	var answer apierrors.APIStatus
	if !errors.As(err, &answer) {
		return false
	}
	switch answer.Status().Code {
	case http.StatusUnauthorized, http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return false
	}
	return !strings.Contains(err.Error(), "does not support dry run")
}

// warnings collects the warnings of the API server.
type warnings []string

// HandleWarningHeaderWithContext stores a warning.
func (w *warnings) HandleWarningHeaderWithContext(_ context.Context, _ int, _, text string) {
	if !slices.Contains(*w, text) {
		*w = append(*w, text)
	}
}
