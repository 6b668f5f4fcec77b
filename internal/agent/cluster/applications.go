package cluster

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"tenon.sh/tenon/internal/cluster/kube"
	"tenon.sh/tenon/internal/config"
	"tenon.sh/tenon/internal/decide/match"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// hostExempt is the reason why Tenon evicts no program of
// host-application-config. No controller starts such a program again, and the
// end of a NodeManager would also end all its containers. Koordinator evicts
// only pods.
const hostExempt = "it is a program of host-application-config, and only pods are evicted"

// rulesOf returns rules for the programs in host-application-config, which run
// outside Kubernetes. It skips programs without a class or without a cgroup of
// their own. A notice about the configuration names the skipped programs.
//
// A BE program requests no CPU. As in Koordinator, the satisfaction of BE
// counts only the requests of pods. It runs on batch resources unless its
// priority is above koord-batch: then its usage reduces them, as in Koordinator.
// A program without a priority runs on them, too.
func rulesOf(applications []config.HostApplication, l kube.Layout) []match.Rule {
	var rules []match.Rule
	for _, a := range applications {
		path := groupOfApplication(a, l)
		if class := node.Class(a.Class.Or("")); class != "" && path != "" {
			band := kube.Bands[kube.PriorityClass(a.Priority.Or(""))]
			r := match.Rule{Name: a.Name.Or(""), Class: class, Cgroups: []string{literalGlob(path)}, Priority: int(band.Default), EvictionExempt: hostExempt}
			if class == node.BE {
				r.CPURequest = node.Some[unit.MilliCPU](0)
				r.Mid = r.Priority > int(kube.Bands[kube.PriorityBatch].Default)
			}
			rules = append(rules, r)
		}
	}
	return rules
}

// groupOfApplication returns the cgroup of a program that runs outside
// Kubernetes, or "".
func groupOfApplication(a config.HostApplication, l kube.Layout) string {
	base, own := a.Place()
	if own == "" {
		return ""
	}
	below := map[string]node.CgroupPath{
		"Kubepods":           l.QOS(corev1.PodQOSGuaranteed),
		"KubepodsBurstable":  l.QOS(corev1.PodQOSBurstable),
		"KubepodsBesteffort": l.QOS(corev1.PodQOSBestEffort),
	}[base]
	return string(below.Join(own))
}

// literalGlob returns a glob that matches only the given path.
func literalGlob(path string) string {
	return strings.NewReplacer("*", "[*]", "?", "[?]", "[", "[[]").Replace(path)
}
