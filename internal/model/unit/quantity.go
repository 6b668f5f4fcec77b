package unit

import (
	"math"
	"math/big"
	"strings"
)

// A Rounding says what becomes of the part of an amount that is less than one
// unit. What a node has is rounded down, and what a pod requests or may use is
// rounded up, as in Kubernetes. So Tenon never gives away what is not there.
type Rounding bool

// The two roundings: towards −∞ and towards +∞.
const (
	Down Rounding = false
	Up   Rounding = true
)

// Round returns n × 10^exponent as a whole number. A result that does not fit
// in an int64 becomes the nearest int64. The cost grows with the exponent.
func (r Rounding) Round(n *big.Int, exponent int) int64 {
	power := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(max(exponent, -exponent))), nil)
	if exponent >= 0 {
		return saturate(power.Mul(n, power))
	}
	return r.divide(n, power)
}

// divide returns n / by, with by above 0.
func (r Rounding) divide(n, by *big.Int) int64 {
	whole, rest := new(big.Int).DivMod(n, by, new(big.Int)) // rest is at least 0
	if r == Up && rest.Sign() > 0 {
		whole.Add(whole, big.NewInt(1))
	}
	return saturate(whole)
}

func saturate(n *big.Int) int64 {
	switch {
	case n.IsInt64():
		return n.Int64()
	case n.Sign() < 0:
		return math.MinInt64
	}
	return math.MaxInt64
}

// The suffixes of a quantity: of Kubernetes, binary and decimal. The value of a
// decimal one is an exponent of 10.
var (
	binarySuffixes  = map[string]uint{"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
	decimalSuffixes = map[string]string{"n": "-9", "u": "-6", "m": "-3", "": "0", "k": "3", "M": "6", "G": "9", "T": "12", "P": "15", "E": "18"}
)

// The limits of the text of a quantity. The longest useful one, an int64 with a
// sign and nine decimals, has 30 characters. The cost of reading it grows with
// its exponent.
const (
	maxQuantity       = 40
	maxExponentDigits = 2
)

// ParseQuantity reads a quantity of Kubernetes, such as 1500m, 2Gi, 1e3 or 0.5,
// and returns it in whole units, of which one whole has per: 1000 for CPUs in
// thousandths. It returns false if the text is no quantity, has more than 40
// characters, or has an exponent of more than two digits. A quantity that does
// not fit in an int64 becomes the nearest int64.
// (k8s.io/apimachinery/pkg/api/resource: Quantity.)
func ParseQuantity(text string, per int64, r Rounding) (int64, bool) {
	end := strings.LastIndexAny(text, "0123456789.") + 1
	number, suffix := text[:end], text[end:]
	digits, exponent, scientific := strings.Cut(strings.ToLower(number), "e")
	if len(text) > maxQuantity || strings.Trim(number, "0123456789.eE+-") != "" || len(strings.TrimLeft(exponent, "+-")) > maxExponentDigits {
		return 0, false
	}
	shift, binary := binarySuffixes[suffix]
	if !binary {
		power, decimal := decimalSuffixes[suffix]
		if !decimal || scientific && suffix != "" {
			return 0, false
		}
		if !scientific {
			number = digits + "e" + power
		}
	} else if scientific {
		return 0, false
	}
	n, isNumber := new(big.Rat).SetString(number)
	if !isNumber {
		return 0, false
	}
	whole := new(big.Int).Mul(n.Num(), big.NewInt(per))
	return r.divide(whole.Lsh(whole, shift), n.Denom()), true
}
