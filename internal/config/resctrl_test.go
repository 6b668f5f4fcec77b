package config

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tenon.sh/tenon/internal/decide/cache"
	"tenon.sh/tenon/internal/model/node"
)

func TestSharesOfCacheAreOfClassesThatEnableThem(t *testing.T) {
	c := mustParse(t, header+`memoryBandwidth: 200G
resource-qos-config:
  lsrClass: {resctrlQOS: {enable: true, catRangeStartPercent: 30}}
  lsClass: {resctrlQOS: {catRangeEndPercent: 60}}
  beClass: {resctrlQOS: {enable: true, mbaPercent: 20}}
  systemClass: {resctrlQOS: {enable: true}}
`)
	want := cache.Config{Peak: 200e9, Classes: map[node.Class]cache.Share{
		node.LSE: {Start: 30, End: 100, Bandwidth: 100},
		node.LSR: {Start: 30, End: 100, Bandwidth: 100},
		node.BE:  {Start: 0, End: 30, Bandwidth: 20},
	}}
	if diff := cmp.Diff(want, c.Policy.Cache); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if len(c.Notices) != 1 || !strings.Contains(strings.Join(c.Notices, "\n"), "systemClass.resctrlQOS is not acted on") {
		t.Errorf("notices: %q", c.Notices)
	}
}

func TestABandwidthThatNoMachineHasIsRefused(t *testing.T) {
	for text, want := range map[string]string{
		"memoryBandwidth: 0":   "memoryBandwidth: 0: want bytes per second behind one L3 cache, such as 200G",
		"memoryBandwidth: max": "memoryBandwidth: max: want bytes per second behind one L3 cache, such as 200G",
	} {
		_, faults := Parse([]byte(header + text + "\n"))
		if len(faults) != 1 || !strings.HasSuffix(faults[0].String(), want) {
			t.Errorf("%s: %v, want %q", text, faults, want)
		}
	}
}
