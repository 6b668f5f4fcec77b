package lines

import (
	"strings"
	"testing"
	"time"
)

func TestALineHoldsOneLatencyOrNone(t *testing.T) {
	for line, want := range map[string]struct {
		latency time.Duration
		kind    Kind
	}{
		"850":                 {850 * time.Microsecond, Latency},
		" 1.25ms\t":           {1250 * time.Microsecond, Latency},
		"0":                   {0, Latency},
		"850 set":             {0, Mixed},
		"850, 200":            {0, Other},
		"-1":                  {0, Other},
		"NaN":                 {0, Other},
		"inf":                 {longest, Latency}, // longer than any run, which voids it
		"1e300":               {longest, Latency},
		"":                    {0, Other},
		"done":                {0, Other},
		"1700000000.1 200 1s": {0, Mixed},
	} {
		if got, kind := Parse(line); got != want.latency || kind != want.kind {
			t.Errorf("%q: %v, kind %d; want %v, %d", line, got, kind, want.latency, want.kind)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"850", "1.25ms", "1e400", "-1", "850 set", "0x1p-2", "1h2m", strings.Repeat("9", 400)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, line string) {
		latency, kind := Parse(line)
		if latency < 0 || kind != Latency && latency != 0 || kind == Latency && len(strings.Fields(line)) != 1 {
			t.Errorf("%q: %v, kind %d", line, latency, kind)
		}
		Tool(line)
	})
}
