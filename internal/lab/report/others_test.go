package report

import "testing"

func TestTheLargestProgramsComeFirst(t *testing.T) {
	got := Largest(map[string]float64{"a": 0.1, "b": 0.5, "c": 0, "d": 0.1})
	if len(got) != 3 || got[0].Name != "b" || got[1].Name != "a" || got[2].Name != "d" {
		t.Errorf("%+v", got)
	}
}
