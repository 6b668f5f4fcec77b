package e2e

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"tenon.sh/tenon/internal/agent/control"
	"tenon.sh/tenon/internal/agent/workers"
)

// workersConfig has one virtual worker for all encoders.
const workersConfig = `apiVersion: tenon.sh/v1alpha1
kind: NodeConfig
period: 100ms
slices:
- {name: encoders, cpus: 1}
rules:
- {name: web, class: LS, cgroups: ["ROOT/services/*"]}
- {name: encode, class: BE, cgroups: ["ROOT/batch/encode*"], slice: encoders}
resource-qos-config: {policies: {cpuIsolation: weight}, beClass: {cpuQOS: {enable: true}}}
signals: {runQueueDelay: off}
`

// TestSlicesAreResizedWhileWorkRuns resizes a worker that contains two
// encoders. It changes the size between one CPU and two, by the requests that
// tenon slice makes. The next tenond must keep the size, and in the end the
// former sets must be back. In the long form, TENON_TEST_RESIZES is the number
// of resizes.
func TestSlicesAreResizedWhileWorkRuns(t *testing.T) {
	needPrograms(t, "ffmpeg")
	s := plantSite(t, workersConfig)
	all := s.cpus("services")
	if all.Len() != 2 {
		t.Skipf("written for 2 CPUs, this machine has %d", all.Len())
	}
	resizes := 4
	if n, err := strconv.Atoi(os.Getenv("TENON_TEST_RESIZES")); err == nil {
		resizes = n
	}
	s.endPrograms()
	both := []*encoder{s.encode("batch/encode"), s.encode("batch/encode2")}
	s.before = s.dump(t)
	whole := s.wholeSets()
	d := s.tenond()
	has := func(cpus int) func() bool {
		return func() bool {
			return s.cpus("batch/encode").Len() == cpus && s.cpus("batch/encode2") == s.cpus("batch/encode")
		}
	}
	eventually(t, "both encoders have one CPU", has(1))
	c := control.NewClient(s.state)
	for i := range resizes {
		cpus := 2 - i%2
		frames := []int{both[0].frames(), both[1].frames()}
		if _, err := workers.Set(t.Context(), c, "encoders", cpus); err != nil {
			t.Fatalf("resize %d: %v", i, err)
		}
		eventually(t, fmt.Sprintf("resize %d: both encoders have %d CPUs", i, cpus), has(cpus))
		for j, e := range both {
			eventually(t, "the encoder goes on", func() bool { return e.frames() > frames[j] })
			if !e.alive() {
				t.Fatalf("encoder %d ended in resize %d", j, i)
			}
		}
	}
	if _, err := workers.Set(t.Context(), c, "encoders", 2); err != nil {
		t.Fatal(err)
	}
	d.stop()
	d = s.tenond()
	eventually(t, "the next tenond lists the size that was set", func() bool {
		list, err := workers.List(t.Context(), c)
		return err == nil && len(list) == 1 && list[0].CPUs == 2 && list[0].Configured == 1 && len(list[0].Workers[0].Work) == 2
	})
	eventually(t, "both encoders have two CPUs", has(2))
	if _, err := workers.Set(t.Context(), c, "encoders", 3); err == nil || !strings.Contains(err.Error(), "want 1 to 2 CPUs") {
		t.Errorf("more CPUs than there are: %v", err)
	}
	d.stop()
	for file, text := range whole {
		if now, err := os.ReadFile(file); err == nil && strings.TrimSpace(string(now)) != "" {
			s.before[file] = text
		}
	}
	s.restore()
}
