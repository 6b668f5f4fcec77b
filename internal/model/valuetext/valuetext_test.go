package valuetext

import (
	"maps"
	"testing"

	"tenon.sh/tenon/internal/model/unit"
)

func TestLinesReadBack(t *testing.T) {
	lines := map[unit.Device]int64{{Major: 254}: 100, {Major: 8}: 50}
	text := Lines(lines, Decimal)
	if text != "8:0 50, 254:0 100" {
		t.Errorf("printed as %q", text)
	}
	if back, err := ParseLines(text, ParseDecimal); err != nil || !maps.Equal(back, lines) {
		t.Errorf("%q reads as %v: %v", text, back, err)
	}
	for _, bad := range []string{"vda 1", "8:0", "8:0 -1", "8:0 1,254:0 1"} {
		if m, err := ParseLines(bad, ParseDecimal); err == nil {
			t.Errorf("%q reads as %v", bad, m)
		}
	}
}

func TestSchemataReadBack(t *testing.T) {
	by := map[int]uint64{10: 7, 2: 255}
	text := Schema(by, func(n uint64) string { return Decimal(int64(n)) })
	if text != "2=255;10=7" {
		t.Errorf("printed as %q", text)
	}
	if back, err := ParseSchema[int](text, 10); err != nil || !maps.Equal(back, by) {
		t.Errorf("%q reads as %v: %v", text, back, err)
	}
	for _, bad := range []string{"", "0=", "0=1;0=2", "x=1", "0=8;"} {
		if m, err := ParseSchema[int](bad, 8); err == nil {
			t.Errorf("%q reads as %v", bad, m)
		}
	}
}
