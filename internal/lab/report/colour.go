package report

import (
	"fmt"
	"html"
)

// Colour sets the variable --c to the colour of a mode. A mode without a colour
// in the style sheet gets the colour of text.
func Colour(m Mode) string {
	return fmt.Sprintf("--c:var(--m-%s,currentColor)", html.EscapeString(string(m)))
}

// dashed distinguishes modes of the same family without colour.
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
