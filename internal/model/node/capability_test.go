package node

import "testing"

// TestVendorMarks checks that no two rows have the same feature. Each row must
// also say what replaces its mark on other kernels.
func TestVendorMarks(t *testing.T) {
	seen := map[Feature]bool{}
	for _, v := range VendorMarks {
		if v.Can == "" || v.Instead == "" || seen[v.Can] {
			t.Errorf("%+v", v)
		}
		seen[v.Can] = true
		if !(Capabilities{v.Can: {Verdict: Yes}}).CanMark() {
			t.Errorf("a kernel with %s cannot mark", v.Can)
		}
	}
	if (Capabilities{FeatureSchedExt: {Verdict: Yes}, FeatureQOSLevel: {Verdict: Unknown}}).CanMark() {
		t.Error("a kernel without marks can mark")
	}
}
