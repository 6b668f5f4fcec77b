package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// Check returns the faults of s that do not depend on its source: values out of
// range, and values that contradict each other. Faults have no line.
func (s Strategies) Check() []Fault {
	c := checker{bad: map[string]bool{}}
	c.checkMapping(reflect.ValueOf(s), "")
	c.checkOrder(s)
	return c.faults
}

// faults returns the faults of f that its parser did not find. It reports each mistake once: a
// key is not missing if the parser refused the key or found it misspelt.
func (f file) faults(found []Fault, meant []string) []Fault {
	c := checker{bad: map[string]bool{}}
	for _, fault := range found {
		c.bad[fault.Field] = true
	}
	for _, field := range meant {
		c.bad[field] = true
	}
	c.checkMapping(reflect.ValueOf(f), "")
	c.checkFile(f)
	c.checkOrder(f.Strategies)
	return c.faults
}

// A checker collects the faults of parsed values.
type checker struct {
	faults []Fault
	bad    map[string]bool // fields with a fault
	// lenient means that the source is a ConfigMap or an annotation, which may
	// contain values without effect.
	lenient bool
}

func (c *checker) fault(field, problem string) {
	c.faults = append(c.faults, Fault{Field: field, Problem: fmt.Sprintf("%.800s", problem)}) // it may name another key's value
	c.bad[field] = true
}

// isFull reports whether the list of faults is long enough.
func (c *checker) isFull() bool { return len(c.faults) > maxFaults }

// badBelow reports whether the field or any field below it has a fault.
func (c *checker) badBelow(field string) bool {
	for bad := range c.bad {
		if bad == field || strings.HasPrefix(bad, field+".") || strings.HasPrefix(bad, field+"[") {
			return true
		}
	}
	return false
}

// need adds a fault if the key at the path field is not set. want describes the accepted values.
func (c *checker) need(field string, set bool, want string) {
	if !set && !c.bad[field] {
		c.fault(field, "missing: want "+want)
	}
}

// checkMapping checks all values below v against the struct tags of their fields.
func (c *checker) checkMapping(v reflect.Value, path string) {
	for _, k := range keysOf(v.Type()) {
		c.value(v.FieldByIndex(k.index), join(path, k.name), k)
	}
}

func (c *checker) value(v reflect.Value, path string, k key) {
	switch m := v.Interface().(type) {
	case node.Maybe[string]:
		if word, set := m.Value(); set && len(k.words) > 0 && !slices.Contains(k.words, word) && !(c.lenient && k.isInert(word)) {
			c.fault(path, quote(word)+": want "+k.want(aText))
		}
	case node.Maybe[unit.Percent]:
		checkSpan(c, m, path, k, aWhole)
	case node.Maybe[int64]:
		checkSpan(c, m, path, k, aWhole)
	case node.Maybe[float64]:
		checkSpan(c, m, path, k, aNumber)
	case node.Maybe[time.Duration]:
		checkSpan(c, m, path, k, aDuration)
	case node.Maybe[Bandwidth]:
		if b := valueOf(m); b.Percent < 0 || b.Percent > 100 {
			c.fault(path, fmt.Sprintf("%d: want %s", b.Percent, aBandwidth))
		}
	case Duration:
		if m <= 0 {
			c.fault(path, fmt.Sprintf("%v: want more than 0", time.Duration(m)))
		}
	default:
		if v.Kind() == reflect.Map && v.Type().Elem().Kind() != reflect.Interface {
			for _, name := range v.MapKeys() {
				c.value(v.MapIndex(name), path+"["+label(name.String())+"]", k)
			}
			return
		}
		c.inner(v, path)
	}
}

func (c *checker) inner(v reflect.Value, path string) {
	switch {
	case v.Kind() == reflect.Slice:
		for i := range v.Len() {
			if c.isFull() {
				return
			}
			c.value(v.Index(i), fmt.Sprintf("%s[%d]", path, i), key{})
		}
	case v.Kind() == reflect.Struct && !isLeaf(v):
		c.checkMapping(v, path)
	}
}

// checkSpan checks that a number is in the range of its key.
func checkSpan[T ~int64 | ~float64](c *checker, m node.Maybe[T], path string, k key, noun string) {
	if v, set := m.Value(); set && !k.span.Holds(float64(v)) && !(c.lenient && k.taken != (span{}) && k.taken.Holds(float64(v))) {
		c.fault(path, strings.TrimSuffix(fmt.Sprint(v), "%")+": want "+k.want(noun))
	}
}

// checkOrder checks pairs of keys that limit each other, such as a minimum and a maximum.
func (c *checker) checkOrder(s Strategies) {
	for _, p := range thresholdPairs {
		c.checkPair(p, s.Threshold, defaults.Threshold, "resource-threshold-config")
	}
	c.checkBlocks(s.QOS)
	c.checkIdentities(s.QOS)
	own, usual := s.QOS.classes(), defaults.QOS.classes()
	for i, class := range own {
		c.checkPair(resctrlPair, class.Resctrl, usual[i].Resctrl, "resource-qos-config."+class.key+".resctrlQOS")
	}
}

// A pair is two percentages of one mapping. The value of low must be below that of high.
type pair struct {
	low, high string
	equal     bool // low and high may be equal
	// holds is a part of the message. It says which of the two values applies if
	// low is above high. It is "" if neither value applies.
	holds string
}

var thresholdPairs = []pair{
	{"cpuSuppressMinPercent", "cpuSuppressThresholdPercent", true, "BE keeps cpuSuppressMinPercent in any case"},
	{"memoryEvictLowerPercent", "memoryEvictThresholdPercent", false, ""},
	{"cpuEvictLowerPercent", "cpuEvictThresholdPercent", false, ""},
	{"cpuEvictBESatisfactionLowerPercent", "cpuEvictBESatisfactionUpperPercent", false, ""},
	{"cpuAllocatableEvictLowerPercent", "cpuAllocatableEvictThresholdPercent", false, ""},
	{"memoryAllocatableEvictLowerPercent", "memoryAllocatableEvictThresholdPercent", false, ""},
}

var resctrlPair = pair{"catRangeStartPercent", "catRangeEndPercent", false, ""}

// checkPair adds a fault if the two percentages of p contradict each other. It
// adds none if one of the two already has a fault.
func (c *checker) checkPair(p pair, set, usual any, path string) {
	if c.bad[join(path, p.low)] || c.bad[join(path, p.high)] {
		return
	}
	if name, problem := p.contradiction(set, usual); problem != "" {
		c.fault(join(path, name), problem)
	}
}

// contradiction compares the two percentages of a pair. If they contradict each
// other, it returns the key with the wrong value, and the problem. An unset
// percentage has its default. If an unset percentage has no default, the two
// cannot contradict each other.
func (p pair) contradiction(set, usual any) (name, problem string) {
	l, lowSet := percentOf(set, p.low).Value()
	h, highSet := percentOf(set, p.high).Value()
	if !lowSet && !highSet {
		return "", ""
	}
	known, by := true, ""
	if !lowSet {
		l, known = percentOf(usual, p.low).Value()
		by = " by default"
	}
	if !highSet {
		h, known = percentOf(usual, p.high).Value()
		by = " by default"
	}
	below, above := "less than", "more than"
	if p.equal {
		below, above = "at most", "at least"
	}
	switch {
	case !known || l < h || (p.equal && l == h):
		return "", ""
	case lowSet:
		return p.low, fmt.Sprintf("%d: want %s %s, which is %d%s", l, below, p.high, h, by)
	}
	return p.high, fmt.Sprintf("%d: want %s %s, which is %d%s", h, above, p.low, l, by)
}

// percentOf returns the percentage with the given name in a mapping.
func percentOf(mapping any, name string) node.Maybe[unit.Percent] {
	v := reflect.ValueOf(mapping)
	for _, k := range keysOf(v.Type()) {
		if k.name == name {
			return v.FieldByIndex(k.index).Interface().(node.Maybe[unit.Percent])
		}
	}
	panic("config: no key " + name + " in " + v.Type().String())
}

// parent returns the path of the field that contains a field: "rules[1]" for
// "rules[1].class", and "rules" for "rules[1]". For a top-level key it returns "".
func parent(field string) string {
	return field[:max(strings.LastIndexAny(field, ".["), 0)]
}
