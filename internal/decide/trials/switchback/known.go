package switchback

import (
	"cmp"
	"slices"
	"strings"
)

// A Place says on which CPUs a service may run.
type Place struct {
	Service string `json:"service"`
	// Shape is a hash of the numbers of CPUs and cores in each L3 cache. It is 0
	// if the service may use all CPUs of the node. Replicas that are bound to
	// CPUs of the same shape have one place.
	Shape uint64 `json:"shape,omitempty"`
}

func (p Place) compare(o Place) int {
	return cmp.Or(strings.Compare(p.Service, o.Service), cmp.Compare(p.Shape, o.Shape))
}

// freshNames returns the services that were never seen before, sorted. A new Job
// must not end the findings about the services that stay.
func (st State) freshNames(in Input) []string {
	var fresh []string
	for id := range in.Workloads {
		if _, passing := slices.BinarySearch(in.Passing, id); passing {
			continue
		}
		name := ServiceName(id)
		if _, known := slices.BinarySearch(st.Names, name); !known {
			fresh = append(fresh, name)
		}
	}
	slices.Sort(fresh)
	return slices.Compact(fresh)
}

// withNames returns the names of all services that were seen, sorted.
func (st State) withNames(in Input, fresh []string) []string {
	if len(fresh) == 0 {
		return st.Names
	}
	names := slices.Concat(st.Names, fresh)
	if len(names) > namesKnown { // forget those that are gone
		names = names[:0]
		for id := range in.Workloads {
			names = append(names, ServiceName(id))
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// movedService returns a service that has a place now which it did not have
// since findings were last dropped, or "". A service that had no place at all
// in this time, because it did not run, has not moved.
func (st State) movedService(in Input) string {
	for _, p := range in.Places {
		at, known := slices.BinarySearchFunc(st.Places, p, Place.compare)
		before := at > 0 && st.Places[at-1].Service == p.Service
		after := at < len(st.Places) && st.Places[at].Service == p.Service
		if !known && (before || after) {
			return p.Service
		}
	}
	return ""
}

// withPlaces returns the places of services since findings were last dropped,
// sorted. If anew is true, they are dropped now.
func (st State) withPlaces(in Input, anew bool) []Place {
	if anew {
		return in.Places
	}
	all := st.Places
	for _, p := range in.Places {
		if _, known := slices.BinarySearchFunc(st.Places, p, Place.compare); !known {
			all = append(slices.Clip(all), p)
		}
	}
	switch {
	case len(all) == len(st.Places):
		return st.Places
	case len(all) > namesKnown: // forget those that are gone
		return in.Places
	}
	slices.SortFunc(all, Place.compare)
	return all
}
