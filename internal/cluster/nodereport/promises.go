package nodereport

import (
	"k8s.io/apimachinery/pkg/api/resource"

	"tenon.sh/tenon/api/v1alpha1"
	"tenon.sh/tenon/internal/cluster/quantity"
	"tenon.sh/tenon/internal/decide/promise"
	"tenon.sh/tenon/internal/model/unit"
)

// promisesOf converts the promises of room. It returns nil if there are none.
func promisesOf(all []promise.Promise) *v1alpha1.Promises {
	if len(all) == 0 {
		return nil
	}
	out := &v1alpha1.Promises{}
	for _, p := range all {
		out.CPU = append(out.CPU, promisedOf(p, p.CPU, quantity.OfCPU))
		out.Memory = append(out.Memory, promisedOf(p, p.Memory, quantity.OfMemory))
	}
	return out
}

func promisedOf[T unit.MilliCPU | unit.Bytes](p promise.Promise, a promise.Amount[T], quantity func(T) resource.Quantity) v1alpha1.PromisedAmount {
	out := v1alpha1.PromisedAmount{Hours: int32(p.Hours), Percent: int32(p.Percent), Judged: a.Judged, Kept: a.Kept, Better: a.Better}
	if skill, known := a.SkillPercent.Value(); known {
		out.Skill = new(int32(skill))
	}
	switch a.Code {
	case promise.Known:
		amount := quantity(a.Value)
		out.Amount = &amount
	case promise.TooFew:
		out.Lacking = int32(max(a.Needed-a.Windows, 1))
	}
	return out
}
