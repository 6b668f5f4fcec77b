// Package lab has what all experiments of the lab have in common: the list of
// their kinds, and the roles of the lab's child processes.
//
// An experiment has a package for its data and its evaluation, such as
// lab/colocation, and a package run below it. Where it runs, on this machine or with
// pods of a Kubernetes cluster, is a site of that package. A run measures one mode
// once. A block contains each mode once, in random order, and
// package report compares modes within blocks. The lab writes raw data after each
// run, so that the finished runs are kept if an experiment ends early.
package lab

import (
	"tenon.sh/tenon/internal/lab/colocation"
	"tenon.sh/tenon/internal/lab/concurrency"
	"tenon.sh/tenon/internal/lab/memory"
	"tenon.sh/tenon/internal/lab/pinning"
	"tenon.sh/tenon/internal/lab/reaction"
	"tenon.sh/tenon/internal/lab/report"
)

// Kinds maps each kind of experiment to the function that reads its data.
var Kinds = report.Kinds{
	colocation.Kind:          colocation.Open,
	colocation.KindKernelQOS: colocation.OpenKernelQOS,
	concurrency.Kind:         concurrency.Open,
	memory.Kind:              memory.Open,
	pinning.Kind:             pinning.Open,
	reaction.Kind:            reaction.Open,
}
