package match

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// makeGroups returns groups with the given paths. If a path ends with "!", the
// group has processes of its own.
func makeGroups(paths ...string) []Group {
	var groups []Group
	for _, p := range paths {
		path, direct := strings.CutSuffix(p, "!")
		groups = append(groups, Group{Path: node.CgroupPath(path), Direct: direct})
	}
	return groups
}

// rule parses a rule of the form "name class glob glob…". A glob with the
// prefix "unit:" is a glob over units.
func rule(text string) Rule {
	f := strings.Fields(text)
	r := Rule{Name: f[0], Class: node.Class(f[1])}
	for _, pattern := range f[2:] {
		if name, ok := strings.CutPrefix(pattern, "unit:"); ok {
			r.Units = append(r.Units, name)
		} else {
			r.Cgroups = append(r.Cgroups, pattern)
		}
	}
	return r
}

func rulesOf(texts ...string) []Rule {
	var rules []Rule
	for _, text := range texts {
		rules = append(rules, rule(text))
	}
	return rules
}

// printWorkloads prints a workload as "cgroup class rule". If its contention
// root is another cgroup, "@" and that cgroup follow.
func printWorkloads(workloads []node.Workload) []string {
	var lines []string
	for _, w := range workloads {
		line := fmt.Sprintf("%s %s %s", w.Cgroup, w.Class, w.Rule)
		if w.ContentionRoot != w.Cgroup {
			line += " @" + string(w.ContentionRoot)
		}
		lines = append(lines, line)
	}
	return lines
}

func TestWorkloads(t *testing.T) {
	for name, c := range map[string]struct {
		rules   []Rule
		groups  []Group
		want    []string
		remarks []string
	}{
		"a group with all below it is one workload": {
			rules:  rulesOf("batch BE batch.slice"),
			groups: makeGroups("batch.slice", "batch.slice/a", "batch.slice/a/b", "other"),
			want:   []string{"batch.slice BE batch"},
		},
		"all below a group are a workload each": {
			rules:  rulesOf("batch BE batch.slice/**"),
			groups: makeGroups("batch.slice", "batch.slice/a", "batch.slice/a/b", "batch.slice/c", "other"),
			want:   []string{"batch.slice/a BE batch @batch.slice", "batch.slice/c BE batch @batch.slice"},
		},
		"units are found by name": {
			rules:  rulesOf("web LS unit:nginx", "batch BE unit:batch-*"),
			groups: makeGroups("system.slice", "system.slice/nginx.service", "system.slice/batch-1.service", "system.slice/batch-2.service", "system.slice/cron.service"),
			want:   []string{"system.slice/batch-1.service BE batch", "system.slice/batch-2.service BE batch", "system.slice/nginx.service LS web"},
		},
		"a user's unit gets no class above BE by its name": {
			rules:   rulesOf("web LS unit:nginx", "batch BE unit:make"),
			groups:  makeGroups("a/nginx.service", "a/user-7.slice/user@7.service/nginx.service", "a/user-7.slice/user@7.service/make.service"),
			want:    []string{"a/nginx.service LS web", "a/user-7.slice/user@7.service/make.service BE batch"},
			remarks: []string{"BE in a/user-7.slice/user@7.service/make.service does not give way to LS in a/nginx.service: weights apply between siblings only, and there BE has the weight of a/user-7.slice, which also holds a/user-7.slice/user@7.service/nginx.service (no rule); give a/user-7.slice/user@7.service/nginx.service a BE rule, or BE a slice of its own"},
		},
		"a unit is that of a user only below the user's manager": {
			rules:  rulesOf("web LS unit:nginx", "managers SYSTEM unit:user@*"),
			groups: makeGroups("a/nginx.service", "a/user@7.service/init.scope"),
			want:   []string{"a/nginx.service LS web", "a/user@7.service SYSTEM managers"},
		},
		"the first rule wins, also over what is below": {
			rules:   rulesOf("all BE a", "late LS a/b", "never LS c"),
			groups:  makeGroups("a", "a/b"),
			want:    []string{"a BE all"},
			remarks: []string{`rule "late" has no workload: its matches, such as a/b, belong to earlier rules, such as "all"`, `rule "never" matches no cgroup`},
		},
		"an earlier rule takes a part out": {
			rules:  rulesOf("web LS **/web", "all BE a"),
			groups: makeGroups("a", "a/b", "a/c", "a/c/web", "a/c/x", "a/d"),
			want:   []string{"a/b BE all", "a/c/web LS web", "a/c/x BE all", "a/d BE all"},
			// There must be no remark. The service is in the parent of each BE
			// group, so weights protect it.
		},
		"processes between the parts are in no workload": {
			rules:   rulesOf("web LS a/web", "all BE a"),
			groups:  makeGroups("a!", "a/web", "a/b"),
			want:    []string{"a/b BE all", "a/web LS web"},
			remarks: []string{`the processes directly in a are in no workload: rule "all" matches it, but a/web below it belongs to rule "web"`},
		},
		"a rule that earlier ones took everything from": {
			rules:   rulesOf("x BE a/x", "y BE a/y", "all LS a"),
			groups:  makeGroups("a", "a/x", "a/y"),
			want:    []string{"a/x BE x @a", "a/y BE y @a"},
			remarks: []string{`rule "all" has no workload: its matches, such as a, belong to earlier rules, such as "x"`},
		},
		"the meeting point is the highest group of one side": {
			rules:  rulesOf("batch BE pods/be/*/*", "gold LSR pods/ls/a", "web LS pods/ls/*"),
			groups: makeGroups("pods", "pods/be", "pods/be/p1", "pods/be/p1/c1", "pods/be/p1/c2", "pods/be/p2/c1", "pods/ls", "pods/ls/a", "pods/ls/b"),
			want: []string{
				"pods/be/p1/c1 BE batch @pods/be", "pods/be/p1/c2 BE batch @pods/be", "pods/be/p2/c1 BE batch @pods/be",
				"pods/ls/a LSR gold @pods/ls", "pods/ls/b LS web @pods/ls",
			},
		},
		"an unmatched group keeps the meeting point down, even empty": {
			rules:  rulesOf("batch BE be/a"),
			groups: makeGroups("be", "be/a", "be/b"),
			want:   []string{"be/a BE batch"},
		},
		"so do processes of a group itself": {
			rules:  rulesOf("batch BE be/a"),
			groups: makeGroups("be!", "be/a"),
			want:   []string{"be/a BE batch"},
		},
		"but not those of a workload or of a leaf": {
			rules:  rulesOf("batch BE be/a"),
			groups: makeGroups("be", "be/a!", "be/a/x!"),
			want:   []string{"be/a BE batch @be"},
		},
		"SYSTEM is a side of its own": {
			rules:  rulesOf("os SYSTEM s/a", "web LS s/b"),
			groups: makeGroups("s", "s/a", "s/b"),
			want:   []string{"s/a SYSTEM os", "s/b LS web"},
		},
		"the root is never a workload nor a meeting point": {
			rules:  rulesOf("all BE **"),
			groups: makeGroups("!", "a", "b"),
			want:   []string{"a BE all", "b BE all"},
		},
		"a group above that is missing is taken to exist": {
			rules:  rulesOf("batch BE be"),
			groups: makeGroups("be/a/b", "be/c"),
			want:   []string{"be BE batch"},
		},
		"a name that begins like another is not below it": {
			rules:  rulesOf("a BE a"),
			groups: makeGroups("a", "a-b", "a-b/c", "a/b", "a.b"),
			want:   []string{"a BE a"},
		},
		"nothing": {},
		"BE beside unmatched work yields only to that": {
			rules:  rulesOf("web LS unit:nginx", "batch BE machines/job*"),
			groups: makeGroups("machines", "machines/job1", "machines/job2", "machines/db", "system", "system/nginx.service"),
			want:   []string{"machines/job1 BE batch", "machines/job2 BE batch", "system/nginx.service LS web @system"},
			remarks: []string{"BE in machines/job1 and 1 more does not give way to LS in system/nginx.service: weights apply between siblings only, " +
				"and there BE has the weight of machines, which also holds machines/db (no rule); give machines/db a BE rule, or BE a slice of its own"},
		},
		"BE beside one service yields to that one only": {
			rules:  rulesOf("web LS a/b/web", "db LSR db", "batch BE a/b/job"),
			groups: makeGroups("a", "a/b", "a/b/web", "a/b/job", "db"),
			want:   []string{"a/b/job BE batch", "a/b/web LS web", "db LSR db"},
			remarks: []string{"BE in a/b/job does not give way to LSR in db: weights apply between siblings only, " +
				`and there BE has the weight of a, which also holds a/b/web (LS by rule "web"); give BE a slice of its own`},
		},
		"BE below processes yields only to those": {
			rules:  rulesOf("web LS web", "batch BE a/job"),
			groups: makeGroups("a!", "a/job", "web"),
			want:   []string{"a/job BE batch", "web LS web"},
			remarks: []string{"BE in a/job does not give way to LS in web: weights apply between siblings only, " +
				"and there BE has the weight of a, which also holds processes directly in a; give BE a slice of its own"},
		},
		"BE at the top yields to all": {
			rules:  rulesOf("web LS unit:nginx", "batch BE batch"),
			groups: makeGroups("batch", "batch/x", "system!", "system/nginx.service", "system/cron.service"),
			want:   []string{"batch BE batch", "system/nginx.service LS web"},
		},
		"a service deeper beside BE is still its sibling's part": {
			rules:  rulesOf("web LS a/x/y/web", "batch BE a/job"),
			groups: makeGroups("a", "a/x", "a/x/y", "a/x/y/web", "a/x/z", "a/job"),
			want:   []string{"a/job BE batch", "a/x/y/web LS web @a/x/y"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			workloads, remarks := Workloads(c.rules, c.groups)
			if diff := cmp.Diff(c.want, printWorkloads(workloads)); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(strings.Join(c.remarks, "\n"), strings.Join(remarks, "\n")); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestWorkloadsHaveTheLimitsOfTheirRule(t *testing.T) {
	r := rule("web LS web/*")
	r.CPULimit, r.MemoryLimit, r.MemoryRequest = node.Some(unit.CPUs(2)), node.Some(unit.Bytes(4096)), node.Some(unit.Bytes(1024))
	r.CPURequest, r.Priority, r.Objective.RunQueueDelay = node.Some(unit.CPUs(1)), -3, node.Some(2*time.Millisecond)
	got, _ := Workloads([]Rule{r}, makeGroups("web/a", "web/b"))
	if len(got) != 2 {
		t.Fatalf("got %v", printWorkloads(got))
	}
	for _, w := range got {
		if w.ID != node.WorkloadID(w.Cgroup) || w.CPULimit != r.CPULimit || w.MemoryLimit != r.MemoryLimit || w.MemoryRequest != r.MemoryRequest ||
			w.CPURequest != r.CPURequest || w.Priority != r.Priority || w.Objective != r.Objective {
			t.Errorf("got %+v", w)
		}
	}
}

func BenchmarkWorkloads(b *testing.B) {
	var rules []Rule
	for i := range 9 {
		rules = append(rules, rule(fmt.Sprintf("web%d LS unit:web%d-* a.slice/**/special%d", i, i, i)),
			rule(fmt.Sprintf("batch%d BE batch%d.slice/** unit:job%d", i, i, i)))
	}
	rules = append(rules, rule("pods BE kubepods/besteffort/*"), rule("rest LS kubepods/burstable/*"))
	var groups []Group
	for i := range 500 {
		pod := node.CgroupPath(fmt.Sprintf("kubepods/%s/pod%032d", []string{"besteffort", "burstable"}[i%2], i))
		groups = append(groups, Group{Path: pod}, Group{Path: pod.Join("container")})
	}
	b.ReportAllocs()
	for b.Loop() {
		if got, _ := Workloads(rules, groups); len(got) != 500 {
			b.Fatalf("got %d workloads", len(got))
		}
	}
}
