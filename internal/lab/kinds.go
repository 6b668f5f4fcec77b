package lab

import (
	"tenon.sh/tenon/internal/lab/colocation"
	"tenon.sh/tenon/internal/lab/memory"
	"tenon.sh/tenon/internal/lab/reaction"
	"tenon.sh/tenon/internal/lab/report"
)

// Kinds are the kinds of experiments whose reports can be made. A new
// experiment is a folder beside this file and a row here.
var Kinds = report.Kinds{
	colocation.Kind:          colocation.Open,
	colocation.KindKernelQOS: colocation.OpenKernelQOS,
	memory.Kind:              memory.Open,
	reaction.Kind:            reaction.Open,
}
