package manager

import (
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"tenon.sh/tenon/internal/cluster/kube"
	"tenon.sh/tenon/internal/cluster/quantity"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// These annotations of a node concern its batch resources (Koordinator:
// apis/extension). The annotations that are settings are in package config.
const (
	thirdPartyKey = "node.koordinator.sh/thirdPartyAllocations"
	originKey     = "node.koordinator.sh/originExtendedAllocatable"
)

// Facts are the data about a node that the manager reads from its Node object.
type Facts struct {
	Capacity [kinds]int64 // rounded down, without huge pages
	// Reserved is the amount that the kubelet withholds from pods, rounded up.
	Reserved [kinds]int64
	// Present are the batch resources in the allocatable of the node's status.
	// Capped are those in its capacity.
	Present, Capped [kinds]node.Maybe[int64]
	// Elsewhere are the batch resources that other schedulers, such as that of YARN, have
	// allocated. Shared reports whether the node has the annotation thirdPartyAllocations.
	Elsewhere [kinds]int64
	Shared    bool
	// Origin is the value of the annotation originExtendedAllocatable: the
	// batch resources of the node, including Elsewhere.
	Origin string
	// Faults describe annotations and labels that cannot be read.
	Faults []string
}

// concernsBatch reports whether an annotation of a node affects its batch
// resources.
func concernsBatch(key string) bool { return strings.HasPrefix(key, "node.koordinator.sh/") }

// factsOf reads the facts of a node.
func factsOf(n *corev1.Node) Facts {
	f := Facts{Origin: n.Annotations[originKey]}
	for k := range kinds {
		capacity := n.Status.Capacity[k.nativeName()]
		if k == memory {
			capacity = kube.MemoryCapacity(n)
		}
		f.Capacity[k] = max(0, k.native(capacity, unit.Down))
		// Kubernetes gives a node without allocatable amounts its capacity.
		if left, has := n.Status.Allocatable[k.nativeName()]; has {
			f.Reserved[k] = max(0, k.native(capacity, unit.Up)-max(0, k.native(left, unit.Down)))
		}
		f.Present[k] = batchAmount(n.Status.Allocatable, k)
		f.Capped[k] = batchAmount(n.Status.Capacity, k)
	}
	f.share(n.Annotations[thirdPartyKey])
	return f
}

// batchAmount returns the amount of a batch resource in a resource list.
func batchAmount(list corev1.ResourceList, k kind) node.Maybe[int64] {
	q, has := list[k.batchName()]
	if !has {
		return node.Maybe[int64]{}
	}
	return node.Some(quantity.Whole(q, unit.Down))
}

// share reads the annotation thirdPartyAllocations, for example
// {"allocations":[{"name":"yarn","priority":"koord-batch",
// "resources":{"kubernetes.io/batch-cpu":"1000"}}]}.
func (f *Facts) share(text string) {
	if text == "" {
		return
	}
	f.Shared = true
	var a struct {
		Allocations []struct {
			Resources map[corev1.ResourceName]json.RawMessage `json:"resources"`
		} `json:"allocations"`
	}
	if err := json.Unmarshal([]byte(text), &a); err != nil {
		f.fault(thirdPartyKey, err)
		return
	}
	for _, one := range a.Allocations {
		for k := range kinds {
			raw, has := one.Resources[k.batchName()]
			if !has {
				continue
			}
			q, err := quantity.Parse(strings.Trim(string(raw), `"`)) // a node may write its own annotations
			if err == nil && q.Sign() < 0 {
				err = fmt.Errorf("%s: want at least 0", q.String())
			}
			if err != nil {
				f.fault(thirdPartyKey, fmt.Errorf("%v: %w", k, err))
				return
			}
			f.Elsewhere[k] = min(quantity.Max, f.Elsewhere[k]+quantity.Whole(q, unit.Up))
		}
	}
}

func (f *Facts) fault(key string, err error) {
	f.Faults = append(f.Faults, fmt.Sprintf("annotation %s: %v", key, err))
}

// originOf returns the text of the annotation originExtendedAllocatable for the amounts.
func originOf(amounts [kinds]node.Maybe[int64]) string {
	resources := map[corev1.ResourceName]string{}
	for k := range kinds {
		if v, has := amounts[k].Value(); has {
			q := k.quantity(v)
			resources[k.batchName()] = q.String()
		}
	}
	text, _ := json.Marshal(map[string]any{"resources": resources}) //nolint:errcheck // a map of strings can always be encoded
	return string(text)
}
