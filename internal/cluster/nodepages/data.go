package nodepages

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"tenon.sh/tenon/api/v1alpha1"
)

// A NodeData is a node as data, for -o json. Its JSON keys are stable.
type NodeData struct {
	Name string `json:"name"`
	// Unknown says why the state of the node is not known.
	Unknown     string              `json:"unknown,omitempty"`
	Capacity    corev1.ResourceList `json:"capacity,omitempty"`
	Allocatable corev1.ResourceList `json:"allocatable,omitempty"`
	// Report is the status of its NodeReport.
	Report *v1alpha1.NodeReportStatus `json:"report,omitempty"`
	// NoCPUs says why the node has no CPU for pods.
	NoCPUs []string `json:"noCPUs,omitempty"`
}

// Data returns the node as data.
func (n Node) Data(now time.Time) NodeData {
	d := NodeData{Name: n.Name, Unknown: n.silenceReason(now), Capacity: n.Status.Capacity, Allocatable: n.Status.Allocatable, NoCPUs: n.noCPUs()}
	if n.Report != nil {
		d.Report = &n.Report.Status
	}
	return d
}

// TrialData is a node with its trials of isolation, for -o json. Its JSON keys
// are stable.
type TrialData struct {
	Name      string           `json:"name"`
	Unknown   string           `json:"unknown,omitempty"`
	Isolation string           `json:"isolation,omitempty"` // the mechanism in use
	Trials    *v1alpha1.Trials `json:"trials,omitempty"`
}

// TrialData returns the trials of the node as data.
func (n Node) TrialData(now time.Time) TrialData {
	d := TrialData{Name: n.Name, Unknown: n.silenceReason(now)}
	if n.Report != nil {
		d.Isolation, d.Trials = n.Report.Status.Isolation, n.Report.Status.Trials
	}
	return d
}
