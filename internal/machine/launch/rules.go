package launch

import (
	"tenon.sh/tenon/internal/decide/match"
	"tenon.sh/tenon/internal/model/node"
)

// Rules returns the rules that give the commands of tenon run their class.
func Rules() []match.Rule {
	return []match.Rule{
		{Name: "tenon run --qos BE", Class: node.BE, Cgroups: []string{"**/" + BestEffortGroup + "/*"}},
		{Name: "tenon run --qos LS", Class: node.LS, Cgroups: []string{"**/" + SensitiveGroup + "/*"}},
	}
}

// Workloads makes workloads from cgroups. It applies the rules of a
// configuration first, and then the rules for the commands of tenon run.
func Workloads(rules []match.Rule, groups []match.Group) ([]node.Workload, []string) {
	return match.Workloads(match.WithMatching(rules, Rules(), groups), groups)
}
