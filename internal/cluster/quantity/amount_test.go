package quantity

import (
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"

	"tenon.sh/tenon/internal/model/unit"
)

func TestQuantitiesAreCountedInWholeUnits(t *testing.T) {
	for text, want := range map[string][4]int64{ // CPU down and up, whole units down and up
		"15499500u":            {15499, 15500, 15, 16},
		"1n":                   {0, 1, 0, 1},
		"-1n":                  {-1, 0, -1, 0},
		"1.5":                  {1500, 1500, 1, 2},
		"-1500500u":            {-1501, -1500, -2, -1},
		"0e99":                 {0, 0, 0, 0},
		"1e-9":                 {0, 1, 0, 1},
		"1Ki":                  {1024000, 1024000, 1024, 1024},
		"100E":                 {Max, Max, Max, Max},
		"-100E":                {-Max, -Max, -Max, -Max},
		"9Ei":                  {Max, Max, Max, Max},
		"4503599627370495999m": {Max, Max, Max - 1, Max},
		"1e2147483647":         {Max, Max, Max, Max}, // the parser of Kubernetes reads it, and computes for hours when it compares it
		"-1e2147483647":        {-Max, -Max, -Max, -Max},
		"0e2147483647":         {0, 0, 0, 0},
	} {
		q := resource.MustParse(text)
		got := [4]int64{int64(CPU(q, unit.Down)), int64(CPU(q, unit.Up)), Whole(q, unit.Down), Whole(q, unit.Up)}
		if got != want {
			t.Errorf("%s: %d, want %d", text, got, want)
		}
	}
}

// random returns the text of a quantity that the API server takes.
func random(rnd *rand.Rand) string {
	number := strconv.FormatUint(rnd.Uint64()>>rnd.IntN(64), 10)
	if at := rnd.IntN(len(number) + 3); at < len(number) {
		number = number[:at] + "." + number[at:]
	}
	suffixes := []string{"", "", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei", "e", "E", "e-", "E+"}
	suffix := suffixes[rnd.IntN(len(suffixes))]
	if strings.HasPrefix(strings.ToLower(suffix), "e") && suffix != "Ei" && suffix != "E" {
		suffix += strconv.Itoa(rnd.IntN(25))
	}
	return number + suffix
}

// TestBothReadersCountAlike compares the conversion of a quantity of Kubernetes
// with that of its text (unit.ParseQuantity), which is checked against numbers
// of unlimited precision. Kubernetes rounds what it reads up to 10⁻⁹.
func TestBothReadersCountAlike(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	counted := 0
	for range 10_000 {
		text := random(rnd)
		q, err := Parse(text)
		if err != nil {
			continue
		}
		counted++
		for _, r := range []unit.Rounding{unit.Down, unit.Up} {
			for per, got := range map[int64]int64{1000: int64(CPU(q, r)), 1: Whole(q, r)} {
				want, is := unit.ParseQuantity(q.String(), per, r)
				if want = min(want, Max); !is || got != want {
					t.Fatalf("%s (%s) × %d, up %v: %d, want %d, %v", text, q.String(), per, r, got, want, is)
				}
				said, is := unit.ParseQuantity(text, per, r)
				if said = min(said, Max); !is || said > got || got-said > 1 {
					t.Fatalf("%s × %d, up %v: %d, its text is %d, %v", text, per, r, got, said, is)
				}
			}
		}
	}
	if counted < 5_000 {
		t.Errorf("only %d texts are quantities", counted)
	}
}

// TestWhatIsWrittenIsReadBack checks that an amount that Tenon writes is the
// same when it is read again, and that it is a whole number where Kubernetes
// wants one.
func TestWhatIsWrittenIsReadBack(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	for range 10_000 {
		v := rnd.Int64N(Max) >> rnd.IntN(52)
		cpu, batch, memory := OfCPU(unit.MilliCPU(v)), OfBatchCPU(unit.MilliCPU(v)), OfMemory(unit.Bytes(v))
		for _, r := range []unit.Rounding{unit.Down, unit.Up} {
			if CPU(resource.MustParse(cpu.String()), r) != unit.MilliCPU(v) || Whole(resource.MustParse(batch.String()), r) != v || Whole(resource.MustParse(memory.String()), r) != v {
				t.Fatalf("%d is written as %s, %s and %s", v, cpu.String(), batch.String(), memory.String())
			}
		}
		if strings.HasSuffix(batch.String(), "m") || strings.HasSuffix(memory.String(), "m") || batch.MilliValue()%1000 != 0 && v < math.MaxInt64/1000 {
			t.Fatalf("%d is written as %s and %s", v, batch.String(), memory.String())
		}
	}
}
