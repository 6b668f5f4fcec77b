package policy

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tenon.sh/tenon/internal/decide/evict"
	"tenon.sh/tenon/internal/decide/facts"
	"tenon.sh/tenon/internal/decide/isolation"
	"tenon.sh/tenon/internal/decide/memory"
	"tenon.sh/tenon/internal/decide/suppress"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// TestConfigKeepsItsForm checks that a capture has the keys of Pool among the
// keys of Suppress. It also checks that a Config is the same after it was
// written as JSON and read back.
func TestConfigKeepsItsForm(t *testing.T) {
	n := newScene(machine(4, 1, 1, 1), 2)
	n.enableAll(t)
	c := n.config
	c.Pool = facts.Pool{CPUs: unit.CPUSetOf(1, 2), LendLSR: true, Reserved: 500, ReservedCPUs: unit.CPUSetOf(0), CPUSetsManagedExternally: true}
	c.Seats.Enable, c.Misfit.After = true, time.Minute
	c.CPUQOS, c.Suppress, c.Overcommit = isolation.Config{Enable: true}, suppress.Config{Enable: true, ThresholdPercent: 65, Policy: suppress.ByQuota}, colocation()
	for v, i := reflect.ValueOf(c), 0; i < v.NumField(); i++ {
		if v.Field(i).IsZero() {
			t.Errorf("%s is not tried", v.Type().Field(i).Name)
		}
	}
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	var back Config
	if err := json.Unmarshal(text, &back); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(c, back) {
		t.Errorf("from its JSON form comes %+v, want %+v", back, c)
	}

	const captured = `{"suppress":{"enable":true,"cpuSuppressThresholdPercent":65,"cpuSuppressMinPercent":0,"cpuSuppressPolicy":"cfsQuota",` +
		`"cpus":"1-2","lend_lsr":true,"reserved_mcpu":500,"reserved_cpus":"0","sets_kept":true},` +
		`"memory_qos":{"classes":{"LS":{"minLimitPercent":1,"lowLimitPercent":2,"throttlingPercent":3}}},"evict":{"grace_ns":1000000000}}`
	small := Config{
		Pool: c.Pool, Suppress: c.Suppress, Evict: evict.Config{Grace: time.Second},
		Memory: memory.Config{Classes: map[node.Class]memory.Shares{node.LS: {MinPercent: 1, LowPercent: 2, ThrottlingPercent: 3}}},
	}
	text, err = json.Marshal(small)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(captured, string(text)); diff != "" {
		t.Errorf("the form of captures (-want +got):\n%s", diff)
	}
}
