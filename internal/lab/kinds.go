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
