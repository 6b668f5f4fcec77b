package cpumap

import (
	"fmt"
	"strings"

	"tenon.sh/tenon/internal/model/cpus"
	"tenon.sh/tenon/internal/model/unit"
	"tenon.sh/tenon/internal/table"
)

// An Owner is a pod with CPUs of the node.
type Owner struct {
	// Pod is "namespace/name" of the pod, or its UID if these are not known.
	Pod     string      `json:"pod"`
	UID     string      `json:"uid"`
	Policy  cpus.Policy `json:"policy"`
	CPUs    unit.CPUSet `json:"cpus"`
	Domain  unit.CPUSet `json:"domain,omitzero"`
	Where   string      `json:"where,omitempty"`
	Request string      `json:"request,omitempty"`
	// By, Code and Why tell who chose the CPUs, or why the node did not use the
	// scheduler's choice. Reported is false if the report lacks the pod.
	By       string `json:"by,omitempty"`
	Code     string `json:"code,omitempty"`
	Why      string `json:"why,omitempty"`
	Reported bool   `json:"reported"`

	CPU unit.MilliCPU `json:"-"` // Request as a number
	// mark is the letter of the pod in the map: upper case if the pod owns CPUs,
	// otherwise lower case. index is the position in the list of owners.
	mark  string
	index int
}

func (o *Owner) isPool() bool { return o.Policy == cpus.Pool }

// beside returns the CPUs of a pool that are outside its home.
func (o *Owner) beside() unit.CPUSet {
	if !o.isPool() || o.Domain.Empty() {
		return unit.CPUSet{}
	}
	return o.CPUs.Minus(o.Domain)
}

// facts are what the list says of an owner, in text, picture and page. A fact
// without text is left out.
var facts = []func(*Map, *Owner) string{
	func(m *Map, o *Owner) string {
		switch o.Policy {
		case cpus.Exclusive:
			return fmt.Sprintf("%s: %s", table.Count(o.CPUs.Len(), "CPU"), listOf(o.CPUs))
		case cpus.Shared:
			return fmt.Sprintf("%s: %s, of %s, requests %v", table.Count(o.CPUs.Len(), "CPU"), listOf(o.CPUs), m.partOf(o.Domain), o.CPU)
		}
		return fmt.Sprintf("the open CPUs of %s (%s), requests %v", m.partOf(o.Domain), listOf(o.Domain), o.CPU)
	},
	func(_ *Map, o *Owner) string { return after("has grown into CPUs ", listOf(o.beside())) },
	func(m *Map, o *Owner) string { return after("not online: CPU ", listOf(o.CPUs.Minus(m.all()))) },
	func(_ *Map, o *Owner) string { return o.reason() },
}

// describe prints what an owner holds.
func (m *Map) describe(o *Owner) string {
	var all []string
	for _, fact := range facts {
		if text := fact(m, o); text != "" {
			all = append(all, text)
		}
	}
	return strings.Join(all, "; ")
}

// reason returns why the node did not use the choice of the scheduler, or why the
// pod has fewer CPUs than it asks for.
func (o *Owner) reason() string {
	if cpus.IsAboutPod(o.Code) {
		return o.Pod + " " + o.Why
	}
	return o.Why
}

// after puts a prefix before a text. It returns "" for an empty text.
func after(prefix, text string) string {
	if text == "" {
		return ""
	}
	return prefix + text
}
