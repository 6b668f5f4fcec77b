package config

import (
	"testing"

	"tenon.sh/tenon/internal/model/node"
)

func TestJSONHasTheKeysAndRangesOfTheFile(t *testing.T) {
	b, faults := ReadJSON[Burst](`{"policy":"auto","cpuBurstPercent":200,"cfsQuotaBurstPercent":null}`)
	if len(faults) > 0 || b.Policy.Or("") != "auto" || b.CPUBurstPercent.Or(0) != 200 || b.CFSQuotaBurstPercent.Known() {
		t.Errorf("%+v, %v", b, faults)
	}
	for text, want := range map[string]string{
		`{"cpuBurstPercent":10001}`:   "cpuBurstPercent: 10001: want a whole number from 1 to 10000",
		`{"cpuBurstPercent":"200"}`:   `cpuBurstPercent: "200": want a whole number from 1 to 10000`,
		`{"cpuBurstPercnt":200}`:      "cpuBurstPercnt: unknown key: did you mean cpuBurstPercent?",
		`{"policy":"auto",}`:          "not JSON: invalid character '}' looking for beginning of object key string",
		`["auto"]`:                    "a list: want keys and values, such as policy: …",
		`{"policy":"a","policy":"b"}`: "policy: this key occurs twice",
	} {
		b, faults := ReadJSON[Burst](text)
		if len(faults) == 0 || faults[0].String() != want || b != (Burst{}) {
			t.Errorf("%s: %+v, %q; want %q", text, b, faults, want)
		}
	}
}

func TestJSONReadsListsAndMappingsWithin(t *testing.T) {
	q, faults := ReadJSON[BlkIOQOS](`{"blocks":[{"name":"vda","ioCfg":{"readBPS":1}},{"name":"vdb"}]}`)
	if len(faults) > 0 || len(q.Blocks) != 2 || q.Blocks[0].IO.ReadBPS != node.Some[int64](1) {
		t.Errorf("%+v, %v", q, faults)
	}
	_, faults = ReadJSON[BlkIOQOS](`{"blocks":[{"type":"tape","ioCfg":{"readBPS":-1}}]}`)
	if len(faults) != 2 || faults[0].Field != "blocks[0].ioCfg.readBPS" || faults[1].Field != "blocks[0].type" {
		t.Errorf("%v", faults)
	}
}
