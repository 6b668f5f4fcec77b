package unit

import (
	"testing"
	"testing/quick"
)

func TestAmountsPrintWhatTheyParse(t *testing.T) {
	for in, want := range map[string]MilliCPU{"2": 2000, "1.5": 1500, "500m": 500, "0": 0} {
		if got, err := ParseMilliCPU(in); err != nil || got != want {
			t.Errorf("ParseMilliCPU(%q) = %v, %v; want %v", in, got, err, want)
		}
	}
	for in, want := range map[string]Bytes{"512Mi": 512 << 20, "2G": 2e9, "1000": 1000, "1.5Ki": 1536, "2Pi": 2 << 50, "1E": 1e18, "128974848000m": 128974848, "1500m": 2, "max": MaxBytes} {
		if got, err := ParseBytes(in); err != nil || got != want {
			t.Errorf("ParseBytes(%q) = %v, %v; want %v", in, got, err, want)
		}
	}
}

func TestBadAmountsNameTheValueAndTheForm(t *testing.T) {
	for _, in := range []string{"", "x", "-1", "1e99", "NaN", "5mm"} {
		if _, err := ParseMilliCPU(in); err == nil {
			t.Errorf("ParseMilliCPU(%q) accepted", in)
		}
	}
	for _, in := range []string{"", "Mi", "-1", "5Q", "8Ei", "5mm", "99999999999999999999", "9e30"} {
		if _, err := ParseBytes(in); err == nil {
			t.Errorf("ParseBytes(%q) accepted", in)
		}
	}
}

// The shares of a v1 node must stay the same when they are read and written
// again. This must also hold for the weights of a v2 node.
func TestWeightIsExactInBothNotations(t *testing.T) {
	for s := int64(MinShares); s <= MaxShares; s++ {
		if got := WeightOfShares(s).Shares(); got != s {
			t.Fatalf("shares %d came back as %d", s, got)
		}
	}
	for w := int64(MinWeight); w <= MaxWeight; w++ {
		if got := WeightOf(w).V2(); got != w {
			t.Fatalf("weight %d came back as %d", w, got)
		}
		if back, err := ParseWeight(WeightOf(w).String()); err != nil || back != WeightOf(w) {
			t.Fatalf("weight %d printed and parsed is %v, %v", w, back, err)
		}
	}
	if WeightOf(100) != WeightOfShares(1024) {
		t.Error("weight 100 and shares 1024 must be the same")
	}
}

func TestWeightIsClampedAsTheKernelDoes(t *testing.T) {
	if WeightOfShares(0).Shares() != MinShares || Weight(1<<40).Shares() != MaxShares || WeightOfShares(2).V2() != MinWeight {
		t.Error("weights outside the kernel's range must move to its edge")
	}
}

func TestCPUSetPrintsTheKernelsListFormat(t *testing.T) {
	for in, want := range map[string]string{"0-3,8\n": "0-3,8", "3,1,2": "1-3", "": "", "2047": "2047", "0-2047": "0-2047"} {
		s, err := ParseCPUSet(in)
		if err != nil || s.String() != want {
			t.Errorf("ParseCPUSet(%q) prints %q, %v; want %q", in, s, err, want)
		}
	}
	for _, in := range []string{"a", "3-1", "2048", "-1", "0-", "1,,2", "0x1"} {
		if _, err := ParseCPUSet(in); err == nil {
			t.Errorf("ParseCPUSet(%q) accepted", in)
		}
	}
}

func TestCPUSetAlgebra(t *testing.T) {
	make := func(words [3]uint16) CPUSet {
		var s CPUSet
		for _, w := range words {
			s = s.With(CPU(w % MaxCPUs))
		}
		return s
	}
	law := func(x, y [3]uint16) bool {
		a, b := make(x), make(y)
		back, err := ParseCPUSet(a.String())
		return err == nil && back == a &&
			a.Union(b).Contains(a) && a.Contains(a.Intersect(b)) && a.Minus(b).Intersect(b).Empty() &&
			a.Union(b).Len() == a.Len()+b.Minus(a).Len()
	}
	if err := quick.Check(law, nil); err != nil {
		t.Error(err)
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"0-3,8", "512Mi", "1.5", "500m", "max", "0.1953125", "0-1023", "1-0"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if set, err := ParseCPUSet(s); err == nil {
			if back, err := ParseCPUSet(set.String()); err != nil || back != set {
				t.Fatalf("%q reads as %v, which reads as %v, %v", s, set, back, err)
			}
		}
		if b, err := ParseBytes(s); err == nil && b < 0 {
			t.Fatalf("%q reads as %d bytes", s, b)
		}
		if m, err := ParseMilliCPU(s); err == nil && m < 0 {
			t.Fatalf("%q reads as %d", s, m)
		}
		if w, err := ParseWeight(s); err == nil {
			if back, err := ParseWeight(w.String()); err != nil || back != w {
				t.Fatalf("%q reads as %v, which reads as %v, %v", s, w, back, err)
			}
		}
	})
}

// TestPercentOfBytesNeverOverflows checks that percentages are rounded down,
// and that a result too large for the type becomes "no limit".
func TestPercentOfBytesNeverOverflows(t *testing.T) {
	for _, c := range []struct {
		of   Bytes
		p    Percent
		want Bytes
	}{{1000, 50, 500}, {99, 50, 49}, {MaxBytes, 100, MaxBytes}, {MaxBytes, 1 << 40, MaxBytes}, {-5, 50, 0}, {5, -1, 0}} {
		if got := c.of.Percent(c.p); got != c.want {
			t.Errorf("%v of %v is %v, want %v", c.p, c.of, got, c.want)
		}
	}
}
