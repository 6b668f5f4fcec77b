package config

import (
	"fmt"
	"reflect"
	"strings"

	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// A ConfigMap may be older than Tenon, so that no webhook has checked it. If one value has no
// effect in Tenon but Koordinator accepts it, the rest of the section must stay in force.
// Therefore the parser unsets each such value, and returns a notice.

// leaveOut unsets the values of s that Koordinator accepts but that have no
// effect. It returns a notice for each of them.
func (s *Strategies) leaveOut() []Fault {
	found := leaveOut(reflect.ValueOf(s).Elem(), "")
	for _, p := range thresholdPairs {
		found = append(found, p.leaveOut(&s.Threshold, defaults.Threshold, "resource-threshold-config")...)
	}
	usual := defaults.QOS.classes()
	for i, class := range s.QOS.pointers() {
		at := "resource-qos-config." + usual[i].key
		found = append(found, resctrlPair.leaveOut(&class.Resctrl, usual[i].Resctrl, at+".resctrlQOS")...)
		if problem := wrongIdentity(usual[i].key, class.CPU.GroupIdentity); problem != "" {
			class.CPU.GroupIdentity = node.Maybe[int64]{}
			found = append(found, Fault{Field: at + ".cpuQOS.groupIdentity", Problem: problem + "; it counts as not set"})
		}
		named := class.BlkIO.Blocks[:0:0]
		for j, b := range class.BlkIO.Blocks {
			if b.Name.Known() {
				named = append(named, b)
				continue
			}
			found = append(found, Fault{Field: fmt.Sprintf("%s.blkioQOS.blocks[%d].name", at, j), Problem: "missing: want " + aBlock + "; this block has no effect"})
		}
		class.BlkIO.Blocks = named
	}
	return found
}

// leaveOut unsets the values in v that have no effect (see inertValue), also in
// nested structs and lists. It returns a notice for each of them.
func leaveOut(v reflect.Value, path string) []Fault {
	var found []Fault
	for _, k := range keysOf(v.Type()) {
		f, at := v.FieldByIndex(k.index), join(path, k.name)
		switch {
		case isLeaf(f):
			if problem := k.inertValue(f); problem != "" {
				f.SetZero()
				found = append(found, Fault{Field: at, Problem: problem + "; it counts as not set"})
			}
		case f.Kind() == reflect.Struct:
			found = append(found, leaveOut(f, at)...)
		case f.Kind() == reflect.Slice && f.Len() > 0 && f.Index(0).Kind() == reflect.Struct && !isLeaf(f.Index(0)):
			// Other layers of the configuration share this list. Therefore change a
			// copy.
			own := reflect.MakeSlice(f.Type(), f.Len(), f.Len())
			reflect.Copy(own, f)
			f.Set(own)
			for i := range f.Len() {
				found = append(found, leaveOut(f.Index(i), fmt.Sprintf("%s[%d]", at, i))...)
			}
		}
	}
	return found
}

// inertValue returns why the value v of the key k has no effect, or "" if it has an effect.
func (k key) inertValue(v reflect.Value) string {
	switch m := v.Interface().(type) {
	case node.Maybe[string]:
		if word, set := m.Value(); set && k.isInert(word) {
			return quote(word) + ": want " + k.want(aText)
		}
	case node.Maybe[unit.Percent]:
		return inertNumber(k, m)
	case node.Maybe[int64]:
		return inertNumber(k, m)
	}
	return ""
}

func inertNumber[T ~int64](k key, m node.Maybe[T]) string {
	if v, set := m.Value(); set && !k.span.Holds(float64(v)) {
		return strings.TrimSuffix(fmt.Sprint(v), "%") + ": want " + k.want(aWhole)
	}
	return ""
}

// leaveOut unsets both percentages of a pair that contradict each other, and returns a
// notice. But if a contradictory pair has an effect, it keeps the pair.
func (p pair) leaveOut(mapping, usual any, path string) []Fault {
	name, problem := p.contradiction(reflect.ValueOf(mapping).Elem().Interface(), usual)
	if problem == "" {
		return nil
	}
	if p.holds != "" {
		return []Fault{{Field: join(path, name), Problem: problem + "; " + p.holds}}
	}
	v := reflect.ValueOf(mapping).Elem()
	for _, k := range keysOf(v.Type()) {
		if k.name == p.low || k.name == p.high {
			v.FieldByIndex(k.index).SetZero()
		}
	}
	return []Fault{{Field: join(path, name), Problem: problem + "; both count as not set"}}
}
