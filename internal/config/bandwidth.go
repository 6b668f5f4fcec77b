package config

import (
	"encoding/json"
	"fmt"
	"strconv"

	"go.yaml.in/yaml/v3"

	"tenon.sh/tenon/internal/model/unit"
)

// Bandwidth is a part of the node's network bandwidth. In the configuration, a number is a
// percentage, and a text such as "50M" is an amount in bytes per second.
type Bandwidth struct {
	Percent unit.Percent
	Amount  unit.Bytes // bytes per second; 0: Percent applies
}

const aBandwidth = `a whole number of percent from 0 to 100, or an amount in quotes such as "50M"`

// readBandwidth reads a number or a text, like IntOrString of Kubernetes.
func readBandwidth(n *yaml.Node, _ key) (Bandwidth, error) {
	switch n.ShortTag() {
	case "!!int":
		if i, err := strconv.ParseInt(n.Value, 10, 64); err == nil {
			return Bandwidth{Percent: unit.Percent(i)}, nil
		}
	case "!!str":
		if b, err := unit.ParseBytes(n.Value); err == nil && b != unit.MaxBytes {
			return Bandwidth{Amount: b}, nil
		}
	}
	return Bandwidth{}, refuse(n, aBandwidth)
}

// MarshalJSON writes a number for a percentage and text for an amount.
func (b Bandwidth) MarshalJSON() ([]byte, error) {
	if b.Amount > 0 {
		return json.Marshal(b.Amount.String())
	}
	return json.Marshal(b.Percent)
}

// UnmarshalJSON reads a number as a percentage and text as an amount.
func (b *Bandwidth) UnmarshalJSON(data []byte) error {
	var text string
	if json.Unmarshal(data, &text) != nil {
		*b = Bandwidth{}
		return json.Unmarshal(data, &b.Percent)
	}
	amount, err := unit.ParseBytes(text)
	if err != nil {
		return fmt.Errorf("bandwidth: %w", err)
	}
	*b = Bandwidth{Amount: amount}
	return nil
}
