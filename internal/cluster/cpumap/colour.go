package cpumap

import (
	"fmt"
	"math"
)

// A scheme has the colours of a picture, for a light or a dark background.
type scheme struct {
	page, socket, numa, l3, reserved colour // surfaces
	ink, dim                         colour // text
	line                             colour // frames of parts and cores
	// The colours of an owner have a hue of its own. fill is the surface of an own
	// CPU, edge is a frame or bar, and text is a mark.
	fill, edge, text shade
}

// A shade is a colour without its hue, in percent.
type shade struct{ saturation, lightness float64 }

// Each text has a contrast of at least 4.5 to its surface. Each frame and bar
// has a contrast of at least 3 (WCAG 2.2, 1.4.3 and 1.4.11).
var (
	light = scheme{
		page: colour{255, 255, 255}, socket: colour{233, 236, 239}, numa: colour{244, 245, 247}, l3: colour{255, 255, 255}, reserved: colour{213, 217, 222},
		ink: colour{20, 24, 29}, dim: colour{74, 82, 91}, line: colour{117, 126, 136},
		fill: shade{70, 82}, edge: shade{65, 34}, text: shade{75, 20},
	}
	dark = scheme{
		page: colour{20, 23, 26}, socket: colour{32, 36, 41}, numa: colour{40, 45, 51}, l3: colour{20, 23, 26}, reserved: colour{62, 68, 75},
		ink: colour{238, 241, 244}, dim: colour{184, 192, 201}, line: colour{136, 146, 156},
		fill: shade{45, 25}, edge: shade{60, 65}, text: shade{80, 86},
	}
)

// A colour is a colour as red, green and blue, each from 0 to 255.
type colour [3]uint8

// String prints the colour in the form of CSS: #14181d.
func (c colour) String() string { return fmt.Sprintf("#%02x%02x%02x", c[0], c[1], c[2]) }

// of makes a colour from the shade and a hue in degrees (CSS Color 4, HSL to
// sRGB).
func (s shade) of(hue int) colour {
	l := s.lightness / 100
	a := s.saturation / 100 * min(l, 1-l)
	part := func(n float64) uint8 {
		k := math.Mod(n+float64(hue)/30, 12)
		return uint8(math.Round(255 * (l - a*max(-1, min(k-3, 9-k, 1)))))
	}
	return colour{part(0), part(8), part(4)}
}

// hue returns the hue of an owner. Multiples of the golden angle distribute the
// hues over the colour circle. Two colours may still look alike, so each CPU
// also shows the mark of its owner.
func (o *Owner) hue() int {
	return (o.index*137 + 210) % 360
}
