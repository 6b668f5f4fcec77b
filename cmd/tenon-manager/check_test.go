package main

import (
	"context"
	"errors"
	"testing"
	"time"

	"tenon.sh/tenon/internal/cluster/manager"
	"tenon.sh/tenon/internal/config"
)

// TestACheckWaitsForHealth checks that a check looks again until all is well, that a
// failed look does not end it, and that its time limit does.
func TestACheckWaitsForHealth(t *testing.T) {
	broken := errors.New("connection refused")
	well := manager.Installation{Wanted: 1, Agents: []string{"a"}, Offering: []string{"a"}}
	looks := 0
	found, err := awaitHealth(t.Context(), func(context.Context) (manager.Installation, error) {
		if looks++; looks == 1 {
			return manager.Installation{}, broken
		}
		return well, nil
	})
	if err != nil || !found.Healthy() || looks != 2 {
		t.Errorf("after %d looks: %+v, %v", looks, found, err)
	}
	over, stop := context.WithCancel(t.Context())
	stop()
	for _, want := range []error{nil, broken} {
		looks = 0
		found, err = awaitHealth(over, func(ctx context.Context) (manager.Installation, error) {
			looks++
			return manager.Installation{Wanted: looks}, errors.Join(want, ctx.Err())
		})
		if !errors.Is(err, want) || (err == nil) != (want == nil) || found.Wanted != 1 || looks != 1 {
			t.Errorf("with a time limit that is over: %d looks, %+v, %v", looks, found, err)
		}
	}
	if limit := time.Minute; checkAgain >= limit {
		t.Errorf("a check looks again after %v", checkAgain)
	}
}

// TestACheckNamesTheNodes checks the lines that helm test --logs shows.
func TestACheckNamesTheNodes(t *testing.T) {
	for _, c := range []struct {
		found    manager.Installation
		webhooks bool
		want     string
	}{
		{manager.Installation{Wanted: 3, Agents: []string{"a", "b", "c"}, Silent: []string{"c"}, Offering: []string{"a", "b"}, Bare: []string{"a", "b"}, Webhook: manager.ErrUnbound,
			ConfigFaults: []config.Fault{{Line: 3, Field: "colocation-config.enable", Problem: "want true or false"}, {Field: "resource-qos-config", Problem: "not JSON"}},
			NodeFaults:   map[string][]config.Fault{"c": {{Field: "label x", Problem: "want a ratio"}}, "b": {{Field: "label y", Problem: "want a ratio"}}}}, true, `agents            3 of 3 nodes have one
reports           2 of 3 nodes have one; not c
batch resources   0 of 2 nodes have them where colocation is enabled; not a, b
configuration     ConfigMap: line 3: colocation-config.enable: want true or false
configuration     ConfigMap: resource-qos-config: not JSON
configuration     node b: label y: want a ratio
configuration     node c: label x: want a ratio
webhooks          no webhook bounded a BE pod
`},
		{manager.Installation{Wanted: 1, Agents: []string{"a"}, Offering: []string{"a"}}, true, `agents            1 of 1 nodes have one
reports           1 of 1 nodes have one
batch resources   1 of 1 nodes have them where colocation is enabled
configuration     no faults
webhooks          bounded a best-effort pod, which was not stored
`},
		{manager.Installation{}, false, `agents            0 of 0 nodes have one
reports           0 of 0 nodes have one
batch resources   0 of 0 nodes have them where colocation is enabled
configuration     no faults
`},
	} {
		if got := installation(c.found, c.webhooks); got != c.want {
			t.Errorf("%+v:\n%s", c.found, got)
		}
	}
}
