package nodes

import (
	"context"
	"time"

	"tenon.sh/tenon/internal/lab/kubectl"
	"tenon.sh/tenon/internal/model/cpus"
	"tenon.sh/tenon/internal/model/unit"
)

// A Report is the part of tenond's report of a node (NodeReport) that the lab reads.
type Report struct {
	Metadata struct{ Name string }
	Status   struct {
		Agent, Isolation string
		Reported         time.Time
		Conditions       []struct{ Type, Status, Reason, Message string }
		CPUs             *struct { // nil: the node gives no CPUs to pods
			Caches   []struct{ CPUs unit.CPUSet }
			Reserved unit.CPUSet
			Manager  string
			Keep     int
			Pods     []struct {
				UID, Why string
				cpus.Allocation
			}
		} `json:"cpus"`
	}
}

// reports is the resource of the reports.
const reports = "nodereports.tenon.sh"

// Reports returns the reports of all nodes that have one.
func Reports(ctx context.Context, k kubectl.Client) ([]Report, error) {
	var all struct{ Items []Report }
	err := k.Get(ctx, &all, reports)
	return all.Items, err
}

// ReportOf returns the report of a node.
func ReportOf(ctx context.Context, k kubectl.Client, node string) (r Report, err error) {
	return r, k.Get(ctx, &r, reports, node)
}

// Is reports whether the node has a condition. tenond reports it with the status True.
func (r Report) Is(condition string) bool {
	for _, c := range r.Status.Conditions {
		if c.Type == condition {
			return c.Status == "True"
		}
	}
	return false
}
