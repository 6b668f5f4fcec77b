package unit

import (
	"fmt"
	"math"
	"math/big"
	"testing"
)

func TestQuantitiesAreRoundedToTheSideThatIsAskedFor(t *testing.T) {
	for text, want := range map[string]struct{ down, up int64 }{
		"68397354188800m":      {68397354188, 68397354189},
		"0.8Gi":                {858993459, 858993460},
		"1n":                   {0, 1},
		"-1n":                  {-1, 0},
		"1e3":                  {1000, 1000},
		"12E+2":                {1200, 1200},
		"5e-1":                 {0, 1},
		"1E":                   {1e18, 1e18},
		".5Ki":                 {512, 512},
		"5.":                   {5, 5},
		"+7":                   {7, 7},
		"100E":                 {math.MaxInt64, math.MaxInt64},
		"-8Ei":                 {math.MinInt64, math.MinInt64},
		"1e99":                 {math.MaxInt64, math.MaxInt64},
		"9223372036854775807":  {math.MaxInt64, math.MaxInt64},
		"-9223372036854775808": {math.MinInt64, math.MinInt64},
	} {
		down, is := ParseQuantity(text, 1, Down)
		up, isToo := ParseQuantity(text, 1, Up)
		if !is || !isToo || down != want.down || up != want.up {
			t.Errorf("%s: %d to %d, want %d to %d", text, down, up, want.down, want.up)
		}
	}
	if m, _ := ParseQuantity("15499500u", 1000, Down); m != 15499 {
		t.Errorf("15499500u are %d thousandths", m)
	}
}

func TestWhatIsNoQuantityOrCostsTooMuchIsRefused(t *testing.T) {
	for _, text := range []string{
		"", "m", "x", "1x", "1/2", "0x10", "1_000", "Inf", "NaN", "1e", "1e5Ki", "1e3k", "1 Gi", "1e100", "1e-2147483647", "1.2.3", "--1",
		"11111111111111111111111111111111111111111",
	} {
		if n, is := ParseQuantity(text, 1, Up); is {
			t.Errorf("%q is %d", text, n)
		}
	}
}

// FuzzParseQuantity compares each result with a number of unlimited precision:
// it is less than one unit away, on the side that is asked for.
func FuzzParseQuantity(f *testing.F) {
	f.Add(int64(683973541888), uint8(9), uint8(2), uint8(0), false)
	f.Add(int64(-15499), uint8(3), uint8(1), uint8(15), true)
	suffixes := []string{"n", "u", "m", "", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei", "e-9", "e0", "E7", "e+18"}
	values := []string{"1e-9", "1e-6", "1e-3", "1", "1e3", "1e6", "1e9", "1e12", "1e15", "1e18", "1024", "1048576", "1073741824", "1099511627776", "1125899906842624", "1152921504606846976", "1e-9", "1", "1e7", "1e18"}
	f.Fuzz(func(t *testing.T, n int64, s, decimals, zeros uint8, milli bool) {
		i, per := int(s)%len(suffixes), int64(1)
		if milli {
			per = 1000
		}
		number := fmt.Sprintf("%d", n)
		if d := int(decimals) % 10; d > 0 {
			number += fmt.Sprintf(".%0*d", d, uint64(n)%1000)
		}
		text := number + suffixes[i]
		exact, _ := new(big.Rat).SetString(number)
		value, _ := new(big.Rat).SetString(values[i])
		exact.Mul(exact, value).Mul(exact, big.NewRat(per, 1))
		down, is := ParseQuantity(text, per, Down)
		up, isToo := ParseQuantity(text, per, Up)
		if !is || !isToo {
			t.Fatalf("%s is refused", text)
		}
		most, least := big.NewRat(math.MaxInt64, 1), big.NewRat(math.MinInt64, 1)
		if exact.Cmp(most) >= 0 {
			exact = most
		} else if exact.Cmp(least) <= 0 {
			exact = least
		}
		for name, miss := range map[string]*big.Rat{"down": new(big.Rat).Sub(exact, big.NewRat(down, 1)), "up": new(big.Rat).Sub(big.NewRat(up, 1), exact)} {
			if miss.Sign() < 0 || miss.Cmp(big.NewRat(1, 1)) >= 0 {
				t.Errorf("%s × %d: %s to %d, %d: off by %s", text, per, name, down, up, miss.FloatString(3))
			}
		}
	})
}
