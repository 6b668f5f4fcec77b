package loop

import (
	"context"
	"errors"
	"slices"
	"testing"

	"tenon.sh/tenon/internal/decide/isolation"
	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/decide/policy"
	"tenon.sh/tenon/internal/model/node"
)

// A backward is a node that performs the steps of a plan in reverse order.
type backward struct {
	*memory
	performed []node.Knob
}

func (b *backward) Order(steps []plan.Step) []int {
	var order []int
	for i := range steps {
		order = append([]int{i}, order...)
	}
	return order
}

func (b *backward) Apply(ctx context.Context, s plan.Step) error {
	b.performed = append(b.performed, s.Knob)
	return b.memory.Apply(ctx, s)
}

// TestAHostChoosesTheOrderOfTheSteps checks that the host performs the steps in
// its own order, and that the tick has them in the order of the plan, each with
// its own error.
func TestAHostChoosesTheOrderOfTheSteps(t *testing.T) {
	config := policy.Config{CPUQOS: isolation.Config{Enable: true}}
	planned, err := (&Agent{Host: colocated(), Config: config, DryRun: true}).Step(t.Context())
	if err != nil || len(planned.Done) != 2 {
		t.Fatalf("%v, %v", planned, err)
	}
	first, second := planned.Done[0].Step.Knob, planned.Done[1].Step.Knob
	h, refused := &backward{memory: colocated()}, errors.New("invalid argument")
	h.refuse = map[node.Knob]error{first: refused}
	got, err := (&Agent{Host: h, Config: config}).Step(t.Context())
	if !errors.Is(err, refused) || !slices.Equal(h.performed, []node.Knob{second, first}) {
		t.Errorf("%v; performed %v", err, h.performed)
	}
	if len(got.Done) != 2 || got.Done[0].Step.Knob != first || !errors.Is(got.Done[0].Err, refused) || got.Done[1].Step.Knob != second || got.Done[1].Err != nil {
		t.Errorf("the tick has %v", got.Done)
	}
}
