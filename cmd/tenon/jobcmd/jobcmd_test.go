package jobcmd

import (
	"strings"
	"testing"

	"tenon.sh/tenon/internal/lab/concurrency"
)

// TestANodeThatCannotExistIsRefused checks the sizes of an imported node.
func TestANodeThatCannotExistIsRefused(t *testing.T) {
	for n, want := range map[concurrency.Node]string{
		{}:                    "",
		{CPUs: 16}:            "",
		{CPUs: 16, Cores: 8}:  "",
		{CPUs: 16, Cores: 10}: "", // some cores have siblings
		{CPUs: 96, Cores: 12}: "",
		{Cores: 8}:            "--node-cores 8 needs --node-cpus",
		{CPUs: 8, Cores: 16}:  "no more cores than CPUs",
		{CPUs: 16, Cores: 5}:  "as many on each",
		{CPUs: 16, Cores: 1}:  "at most 8 CPUs on a core",
		{CPUs: 99999999}:      "at most 8192 CPUs",
		{CPUs: -1}:            "want numbers from 0",
		{CPUs: 8, Cores: -1}:  "want numbers from 0",
	} {
		err := checkNode(n)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: error %v, want %q", n, err, want)
		}
	}
}
