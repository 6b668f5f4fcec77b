package jobs

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// parseMemory reads an amount of memory from the name of a pod. Such an amount
// is in lower case, and may have fractions of a byte, which are rounded up.
func parseMemory(s string) (unit.Bytes, error) {
	end := strings.LastIndexAny(s, "0123456789.") + 1
	scale, known := map[string]float64{"": 1, "ki": 1 << 10, "mi": 1 << 20, "gi": 1 << 30, "ti": 1 << 40, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}[strings.ToLower(s[end:])]
	f, err := strconv.ParseFloat(s[:end], 64)
	if err != nil || !known || f < 0 || f*scale >= math.MaxInt64 {
		return 0, fmt.Errorf("memory %.80q: want a number with an optional suffix Ki Mi Gi Ti k M G T, such as 0.8Gi", s)
	}
	return unit.Bytes(math.Ceil(f * scale)), nil
}

// formatMemory prints an amount in the form that names of pods have ("8gi",
// "0.8gi"). It uses the largest suffix for which at most four digits after the
// point are enough.
func formatMemory(b unit.Bytes) string {
	for _, s := range []struct {
		suffix string
		scale  float64
	}{{"gi", 1 << 30}, {"mi", 1 << 20}, {"ki", 1 << 10}} {
		text := strconv.FormatFloat(float64(b)/s.scale, 'f', -1, 64)
		if _, digits, _ := strings.Cut(text, "."); len(digits) <= 4 && float64(b) >= s.scale/10 {
			return text + s.suffix
		}
		// 0.8Gi is not a whole number of bytes. Therefore a number with four
		// digits after the point also stands for b if it rounds up to b.
		short := strconv.FormatFloat(float64(b)/s.scale, 'f', 4, 64)
		short = strings.TrimRight(strings.TrimRight(short, "0"), ".")
		if f, _ := strconv.ParseFloat(short, 64); unit.Bytes(math.Ceil(f*s.scale)) == b && float64(b) >= s.scale/10 { //nolint:errcheck // FormatFloat has made the text
			return short + s.suffix
		}
	}
	return strconv.FormatInt(int64(b), 10)
}

// formatCPU prints an amount of CPU as names of pods contain it: "4", "0.8".
func formatCPU(m unit.MilliCPU) string { return strconv.FormatFloat(m.Cores(), 'f', -1, 64) }

func someFrames(n int) node.Maybe[float64] { return node.Some(float64(n)) }

// Figure prints a number rounded to three digits, without an exponent. The fourth
// digit of a measured time or rate is noise.
func Figure(v float64) string {
	if v == 0 || math.IsNaN(v) || math.IsInf(v, 0) {
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	digits := 2 - int(math.Floor(math.Log10(math.Abs(v))))
	if digits < 0 {
		unit := math.Pow(10, float64(-digits))
		return strconv.FormatFloat(math.Round(v/unit)*unit, 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'f', digits, 64)
}
