package config

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

const notActedOn = "is not acted on by this version"

// Notices returns a notice for each set key of s that this version does not
// support. It ignores keys in a disabled mapping.
func (s Strategies) Notices() []string {
	notices := append(noticesIn(reflect.ValueOf(s), ""), s.Threshold.evictNotices()...)
	for _, class := range s.QOS.classes() {
		if class.key != "lsClass" && class.CPU.Enable.Or(false) && !s.QOS.cpuQOS() {
			notices = append(notices, "resource-qos-config."+class.key+".cpuQOS alone "+notActedOn+": CPU QoS goes by lsClass and beClass")
		}
		if class.key != "beClass" && class.CPU.Enable.Or(false) && class.CPU.SchedIdle.Or(0) != 0 {
			notices = append(notices, "resource-qos-config."+class.key+".cpuQOS.schedIdle "+notActedOn+": only BE can be idle")
		}
		if be := class.key == "beClass" || class.key == "systemClass"; be && class.CPU.Enable.Or(false) && class.CPU.CoreExpeller.Or(false) {
			notices = append(notices, "resource-qos-config."+class.key+".cpuQOS.coreExpeller "+notActedOn+": only latency-sensitive work keeps BE off its siblings")
		}
		if class.key == "systemClass" && class.Resctrl.Enable.Or(false) {
			notices = append(notices, "resource-qos-config.systemClass.resctrlQOS "+notActedOn+": the node's own daemons stay in the default control group")
		}
	}
	return append(notices, s.QOS.noticesOfBlocks()...)
}

// noticesIn returns the notices for the mapping v at a path.
func noticesIn(v reflect.Value, path string) []string {
	keys := keysOf(v.Type())
	for _, k := range keys {
		if on, isSwitch := v.FieldByIndex(k.index).Interface().(node.Maybe[bool]); isSwitch && k.name == "enable" {
			if !on.Or(false) {
				return nil
			}
			if k.later {
				return []string{path + " " + notActedOn}
			}
		}
	}
	var notices []string
	for _, k := range keys {
		f := v.FieldByIndex(k.index)
		switch {
		case k.later && asks(f, k.off):
			notices = append(notices, join(path, k.name)+" "+notActedOn)
		case !k.later && f.Kind() == reflect.Struct && !isLeaf(f):
			notices = append(notices, noticesIn(f, join(path, k.name))...)
		}
	}
	return notices
}

// Unlikely returns a notice for each number of s that counts, but that its author
// can hardly mean: with cpuReclaimThresholdPercent 250, a node offers more CPUs
// than it has. It ignores keys in a disabled mapping.
func (s Strategies) Unlikely() []string {
	var notices []string
	for _, f := range unlikely(reflect.ValueOf(s), "") {
		notices = append(notices, f.String())
	}
	return notices
}

// unlikely returns these notices for the mapping v at a path.
func unlikely(v reflect.Value, path string) []Fault {
	var found []Fault
	for _, k := range keysOf(v.Type()) {
		f := v.FieldByIndex(k.index)
		m, percent := f.Interface().(node.Maybe[unit.Percent])
		switch on, isSwitch := f.Interface().(node.Maybe[bool]); {
		case isSwitch && k.name == "enable" && !on.Or(false):
			return nil
		case percent && k.likely != (span{}) && m.Known() && !k.likely.Holds(float64(m.Or(0))):
			found = append(found, Fault{Field: join(path, k.name), Problem: fmt.Sprintf("%d counts, but is probably not meant: want %s%v", m.Or(0), aWhole, k.likely)})
		case f.Kind() == reflect.Struct && !isLeaf(f):
			found = append(found, unlikely(f, join(path, k.name))...)
		}
	}
	return found
}

// asks reports whether v is set to a value other than off.
func asks(v reflect.Value, off string) bool {
	if v.IsZero() {
		return false
	}
	text, err := json.Marshal(v.Interface())
	return err == nil && strings.Trim(string(text), `"`) != off
}
