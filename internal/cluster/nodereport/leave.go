package nodereport

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tenon.sh/tenon/api/v1alpha1"
	"tenon.sh/tenon/internal/cluster/apiserver"
)

// retryLeave is the time between two attempts to send the last report. It is
// short, because the process ends.
const retryLeave = 500 * time.Millisecond

// Leave sends the last report of a node from which tenond is removed for good.
// It has neither CPUs nor batch resources, so the API server removes those of
// the report before it. A node without a report gets none. While the API server
// does not answer, Leave tries again until ctx ends; then it returns the error
// of the last attempt.
func Leave(ctx context.Context, api Applier, node, agent string, at time.Time) error {
	fields, err := withoutEmpty(v1alpha1.NodeReportStatus{
		Reported: metav1.NewMicroTime(at), Agent: agent, Run: rand.Text(), Sequence: 1,
		Conditions: setChangeTimes([]metav1.Condition{condition(v1alpha1.AgentRuns, false, v1alpha1.AgentLeft, "tenond was removed from this node: no agent runs there")}, nil, at),
	})
	if err != nil {
		return err
	}
	path := fmt.Sprintf("/apis/%s/nodereports/%s/status", v1alpha1.GroupVersion, node)
	report := appliedReport{APIVersion: v1alpha1.GroupVersion.String(), Kind: "NodeReport", Metadata: appliedMeta{Name: node}, Status: fields}
	for {
		err := api.Apply(ctx, path, Owner, report)
		switch {
		case err == nil, errors.Is(err, apiserver.ErrAbsent):
			return nil
		case apiserver.Denied(err):
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(retryLeave):
		}
	}
}
