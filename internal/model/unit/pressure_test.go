package unit

import (
	"strings"
	"testing"
	"time"
)

func TestPressureTotalsAreMicroseconds(t *testing.T) {
	got, err := ParsePressure("some avg10=25.00 avg60=12.50 avg300=0.50 total=10077645\nfull avg10=0.00 avg60=0.00 avg300=100.00 total=7\n")
	if err != nil {
		t.Fatal(err)
	}
	want := Pressure{
		Some: Stall{10077645 * time.Microsecond, true},
		Full: Stall{7 * time.Microsecond, true},
	}
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestPressureTakesWhatSomeKernelsLeaveOut(t *testing.T) {
	tests := map[string]struct {
		text    string
		wantErr string
	}{
		"cpu before 5.13 has no full":   {text: "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"},
		"irq has only full":             {text: "full avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"},
		"unknown keys and lines":        {text: "some avg10=0.00 avg900=x total=0\nmore avg10=9\n"},
		"empty":                         {text: "", wantErr: "some or full"},
		"an average that is odd":        {text: "some avg10=101.0 avg60=NaN avg300= total=0\n"},
		"total that is not a number":    {text: "some avg10=0.00 total=many\n", wantErr: `total "many"`},
		"total too big for nanoseconds": {text: "some total=9223372036854775807\n", wantErr: "microseconds"},
		"negative total":                {text: "full total=-1\n", wantErr: "microseconds"},
		"no total":                      {text: "some avg10=0.00\n", wantErr: "no total"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := ParsePressure(tc.text)
			if tc.wantErr == "" && err != nil {
				t.Fatal(err)
			}
			if tc.wantErr != "" && (err == nil || !strings.Contains(err.Error(), tc.wantErr)) {
				t.Fatalf("error %v, want one with %q", err, tc.wantErr)
			}
		})
	}
}

func FuzzParsePressure(f *testing.F) {
	f.Add("some avg10=2.57 avg60=1.22 avg300=0.69 total=10077645\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n")
	f.Add("full total=1\n")
	f.Add("some =\n")
	f.Fuzz(func(t *testing.T, text string) {
		p, err := ParsePressure(text)
		if err != nil {
			return
		}
		for _, s := range []Stall{p.Some, p.Full} {
			if s.Total < 0 {
				t.Errorf("out of range: %+v", p)
			}
		}
	})
}
