package config

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tenon.sh/tenon/internal/decide/blockio"
	"tenon.sh/tenon/internal/decide/policy"
	"tenon.sh/tenon/internal/model/node"
)

func TestBlockIOIsByClass(t *testing.T) {
	c := mustParse(t, header+`
resource-qos-config:
  beClass:
    blkioQOS:
      enable: true
      blocks:
      - {name: /dev/vda, type: device, ioCfg: {readIOPS: 1, writeIOPS: 2, readBPS: 3, writeBPS: 0, ioWeightPercent: 50, readLatency: 3000}}
      - {name: vg0, type: volumegroup, ioCfg: {writeBPS: 4}}
      - {name: data, type: podvolume, ioCfg: {writeBPS: 4}}
  lsrClass:
    blkioQOS: {enable: true, blocks: [{name: sdb, ioCfg: {readLatency: 3000, writeLatency: 2000}}]}
  lsClass:
    blkioQOS: {blocks: [{name: sdb, ioCfg: {writeBPS: 4}}]}
`)
	target := []blockio.Device{{Name: "sdb", Latency: 2 * time.Millisecond}}
	want := blockio.Config{Classes: map[node.Class][]blockio.Device{
		node.BE: {
			{Name: "/dev/vda", ReadIOPS: 1, WriteIOPS: 2, ReadBPS: 3, WeightPercent: 50},
			{Name: "vg0", VolumeGroup: true, WriteBPS: 4},
		},
		node.LSR: target, node.LSE: target,
	}}
	if diff := cmp.Diff(want, c.Policy.IO); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if files := policy.Files(c.Policy, nil); !slices.Contains(files, node.FileIOMax) || !slices.Contains(files, node.FileIOLatency) || !slices.Contains(files, node.FileBFQWeight) {
		t.Errorf("snapshots show %v", files)
	}
	if files := policy.Files(mustParse(t, header).Policy, nil); slices.ContainsFunc(files, func(f node.File) bool { return slices.Contains(node.IOFiles, f) }) {
		t.Errorf("without blkioQOS snapshots show %v", files)
	}
}

func TestWhatIsNotDoneOfBlockIOIsNoticed(t *testing.T) {
	const be = "resource-qos-config.beClass.blkioQOS.blocks"
	for text, want := range map[string][]string{
		"enable: true":                                       {be + ": there are none, so block I/O has no limits"},
		"blocks: [{name: a, type: podvolume}]":               nil, // blkioQOS is not enabled
		"enable: true, blocks: [{name: a, type: podvolume}]": {be + "[0].type podvolume is not acted on by this version: there are no pods here"},
		"enable: true, blocks: [{name: a, ioCfg: {readBPS: 1, enableUserModel: false}}]": nil,
		"enable: true, blocks: [{name: a, ioCfg: {enableUserModel: true, modelReadBPS: 5}}]": {
			be + "[0].ioCfg.enableUserModel is not acted on by this version", be + "[0].ioCfg.modelReadBPS is not acted on by this version",
		},
		"enable: true, blocks: [{name: a, ioCfg: {readBPS: 1, readLatency: 5}}]": {be + "[0].ioCfg: latency targets are for services, not for BE"},
		"enable: true, blocks: [{name: /dev/disk/by-id/x}]": {
			be + `[0].name "/dev/disk/by-id/x" is not acted on by this version: want the name that it links to, such as /dev/vda, or a number such as 254:0`,
		},
	} {
		c := mustParse(t, header+"resource-qos-config: {beClass: {blkioQOS: {"+text+"}}}\n")
		if !slices.Equal(c.Notices, want) {
			t.Errorf("%s: notices\n%q, want\n%q", text, c.Notices, want)
		}
	}
}
