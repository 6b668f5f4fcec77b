package report

import (
	"fmt"
	"html"
)

// Colour sets the variable --c to the colour of a mode. Modes that the style
// sheet does not know are drawn like text.
func Colour(m Mode) string {
	return fmt.Sprintf("--c:var(--m-%s,currentColor)", html.EscapeString(string(m)))
}

// dashed tells modes of the same family apart without colour.
func dashed(m Mode) string {
	switch m {
	case ExclusiveAA:
		return " dash"
	case ExclusiveWarm:
		return " dots"
	case Default65, Tenon65, TenonWeight:
		return " dash"
	}
	return ""
}
