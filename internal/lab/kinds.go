package lab

import (
	"tenon.sh/tenon/internal/lab/colocation"
	"tenon.sh/tenon/internal/lab/memory"
	"tenon.sh/tenon/internal/lab/reaction"
	"tenon.sh/tenon/internal/lab/report"
)

// Kinds lists the kinds of experiments for which a report can be made. A new
// experiment needs a folder beside this file and a row here.
var Kinds = report.Kinds{
	colocation.Kind:          colocation.Open,
	colocation.KindKernelQOS: colocation.OpenKernelQOS,
	memory.Kind:              memory.Open,
	reaction.Kind:            reaction.Open,
}
