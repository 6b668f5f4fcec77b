package query

import (
	"context"

	"tenon.sh/tenon/api/v1alpha1"
	"tenon.sh/tenon/internal/cluster/fetch"
	"tenon.sh/tenon/internal/cluster/promapi"
	"tenon.sh/tenon/internal/model/node"
)

// Ask asks one question. It returns an answer for each of its pods, with a reading or
// the reason why there is none. It takes no longer than fetch.Patience. err has the
// details of a failure of the whole question, for a log.
func Ask(ctx context.Context, c *promapi.Client, q Question) (all []v1alpha1.QueriedService, err error) {
	found, err := answers(ctx, c, q)
	if err != nil {
		return q.Unanswered(fetch.TroubleOf(err)), err
	}
	all = q.Unanswered(node.TroubleAbsent)
	for i, s := range all {
		if read, has := found[s.Pod]; has {
			read.Namespace, read.Pod, read.Series = s.Namespace, s.Pod, s.Series
			all[i] = read
		}
	}
	return all, nil
}

func answers(ctx context.Context, c *promapi.Client, q Question) (map[string]v1alpha1.QueriedService, error) {
	text, is := q.PromQL()
	if !is {
		return nil, fetch.Fault(node.TroubleDamaged)
	}
	answer, err := c.Query(ctx, text)
	if err != nil {
		return nil, err
	}
	defer answer.Close()
	return parse(answer)
}
