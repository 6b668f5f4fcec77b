// Package knob has the adapters by which a real or simulated node reads and
// writes each kind of knob. It also divides a knob into the parts that another
// component can change by themselves.
package knob

import (
	"fmt"

	"tenon.sh/tenon/internal/model/node"
)

// An Adapter reads and writes one kind of knob on a node.
type Adapter struct {
	Read func(node.Knob) (node.Value, error)
	// Write writes a value. The value must have the type of the knob's file.
	Write func(node.Knob, node.Value) error
}

// NewAdapter returns an adapter for a kind of knob whose values have the type V.
func NewAdapter[V node.Value](read func(node.Knob) (V, error), write func(node.Knob, V) error) Adapter {
	return Adapter{
		Read: func(k node.Knob) (node.Value, error) {
			v, err := read(k)
			return v, err
		},
		Write: func(k node.Knob, v node.Value) error {
			typed, is := v.(V)
			if !is {
				return fmt.Errorf("write %v: a %T is no value of this file", k, v)
			}
			return write(k, typed)
		},
	}
}

// A Table holds the adapters of a node, one for each file.
type Table map[node.File]Adapter

// Read reads the present value of a knob.
func (t Table) Read(k node.Knob) (node.Value, error) {
	if a, known := t[k.File]; known {
		return a.Read(k)
	}
	return nil, node.ErrUnknownFile(k.File)
}

// Write writes a knob. The value must have the type of the knob's file.
func (t Table) Write(k node.Knob, v node.Value) error {
	if a, known := t[k.File]; known {
		return a.Write(k, v)
	}
	return node.ErrUnknownFile(k.File)
}
