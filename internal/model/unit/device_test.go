package unit

import "testing"

func TestDevicesPrintWhatTheyParse(t *testing.T) {
	for _, text := range []string{"8:0", "254:16", "0:4294967295"} {
		d, err := ParseDevice(text)
		if err != nil || d.String() != text {
			t.Errorf("%q reads as %v, %v", text, d, err)
		}
		var back Device
		if b, err := d.MarshalText(); err != nil || back.UnmarshalText(b) != nil || back != d {
			t.Errorf("%v comes back as %v", d, back)
		}
	}
	for _, text := range []string{"", "8", "8:", ":0", "sda", "8:-1", "8:0:1", "4294967296:0"} {
		if d, err := ParseDevice(text); err == nil {
			t.Errorf("%q reads as %v", text, d)
		}
	}
	if a, b := (Device{8, 16}), (Device{254, 0}); a.Compare(b) >= 0 || b.Compare(a) <= 0 || a.Compare(a) != 0 {
		t.Error("devices are in the order of their numbers")
	}
}
