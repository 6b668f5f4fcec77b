package match

import (
	"strings"
	"testing"

	"tenon.sh/tenon/internal/model/node"
)

func TestContainersAreFoundByNameAndByLabel(t *testing.T) {
	be := map[string]string{"koordinator.sh/qosClass": "BE", "team": "video"}
	groups := []Group{
		{Path: "system.slice"}, {Path: "system.slice/nginx.service"},
		{Path: "system.slice/docker-1.scope", Container: &Container{Name: "encode-1", Labels: be}},
		{Path: "system.slice/docker-1.scope/init.scope"},
		{Path: "system.slice/docker-2.scope", Container: &Container{Name: "web", Labels: map[string]string{"koordinator.sh/qosClass": "LS"}}},
		{Path: "machine.slice/libpod-3.scope", Container: &Container{Name: "encode-2"}},
	}
	for pattern, want := range map[string]string{
		"koordinator.sh/qosClass=BE": "system.slice/docker-1.scope",
		"koordinator.sh/*=[BL]?":     "system.slice/docker-1.scope system.slice/docker-2.scope",
		"team=*":                     "system.slice/docker-1.scope",
		"team=":                      "",
		"encode-*":                   "machine.slice/libpod-3.scope system.slice/docker-1.scope",
		"web":                        "system.slice/docker-2.scope",
		"BE":                         "",
		"docker-1.scope":             "",
	} {
		rules := []Rule{{Name: "r", Class: node.BE, Containers: []string{pattern}}}
		if faults := rules[0].Check(); len(faults) > 0 {
			t.Errorf("%s: %v", pattern, faults)
		}
		workloads, _ := Workloads(rules, groups)
		var got []string
		for _, w := range workloads {
			got = append(got, string(w.Cgroup))
			if w.Container == "" {
				t.Errorf("%s: the workload %s does not say which container it is", pattern, w.ID)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s matches %q, want %q", pattern, got, want)
		}
	}
}

func TestARuleForContainersSaysWhenNoneRuns(t *testing.T) {
	_, remarks := Workloads([]Rule{{Name: "encoders", Class: node.BE, Containers: []string{"encode"}}}, []Group{{Path: "a"}})
	if len(remarks) != 1 || remarks[0] != `rule "encoders" matches no cgroup and no running container` {
		t.Errorf("got %q", remarks)
	}
}

func TestBadGlobsOverContainersAreRefused(t *testing.T) {
	for pattern, want := range map[string]string{
		"":         "want the name of a container, or a label KEY=VALUE",
		"=BE":      "want the name of a container, or a label KEY=VALUE",
		"web-[1":   "want ] after [",
		"a=[z-a]b": "z-a is no range: want the smaller character first",
	} {
		faults := Rule{Name: "r", Class: node.BE, Containers: []string{pattern}}.Check()
		if len(faults) != 1 || faults[0].Field != "containers[0]" || !strings.HasSuffix(faults[0].Problem, want) {
			t.Errorf("%q: got %v, want %s", pattern, faults, want)
		}
	}
}
