package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Outlook is what a node could have given to batch work in the days of its history.
// It has counts and means, so that the outlooks of many nodes can be added up. The
// agent makes it anew at most once an hour. Lists of numbers in place of lists of
// objects keep it below 4.5 KB.
type Outlook struct {
	// Since is the first minute of the history, and Until the end of the last one.
	Since metav1.Time `json:"since"`
	Until metav1.Time `json:"until"`
	// StepMinutes is the length of the steps that are counted. SeenMinutes is the
	// number of minutes between Since and Until that were measured.
	StepMinutes int32 `json:"stepMinutes"`
	SeenMinutes int64 `json:"seenMinutes"`
	// Capacity is what the node has for all work.
	Capacity Usage `json:"capacity,omitempty"`
	// MilliCPU is the room for batch work, in thousandths of a CPU.
	MilliCPU OutlookByHour `json:"milliCPU,omitempty"`
	// MemoryMiB is the same of memory, in MiB.
	MemoryMiB OutlookByHour `json:"memoryMiB,omitempty"`
	// Week sets the room of working days beside that of weekends.
	Week OutlookWeek `json:"week,omitzero"`
	// Risks has what would have become of batch jobs.
	Risks OutlookRisks `json:"risks,omitempty"`
	// Hurt has the services that lost the most time, the worst first: those that waited
	// for other work, and those that their own CPU limit held back.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	Hurt []OutlookHurt `json:"hurt,omitempty"`
}

// OutlookByHour is the room of a resource. Each list has a number for each hour of the
// day (UTC), and a last one for all hours together. The unit is in the name of the
// field that has this type.
type OutlookByHour struct {
	// Measured is the number of steps in which the room was measured.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=25
	Measured []int64 `json:"measured,omitempty"`
	// Low is the 5 % quantile of the room, and Mean its mean.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=25
	Low []int64 `json:"low,omitempty"`
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=25
	Mean []int64 `json:"mean,omitempty"`
	// Used is what all work of the node used, as a mean. -1: it is not known.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=25
	Used []int64 `json:"used,omitempty"`
}

// OutlookWeek is the room for batch work on working days (Monday to Friday, UTC) and on
// weekends, in thousandths of a CPU.
type OutlookWeek struct {
	WeekdayMilliCPU OutlookByHour `json:"weekdayMilliCPU,omitempty"`
	WeekendMilliCPU OutlookByHour `json:"weekendMilliCPU,omitempty"`
	// DayMilliCPU is the mean room of each day, the first of which is that of Since (UTC).
	// -1: less than nine tenths of the day were measured.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	DayMilliCPU []int64 `json:"dayMilliCPU,omitempty"`
}

// OutlookRisks count jobs that began at each measured step, and whose whole length was
// measured. Each list has a number for each kind of job: its length, and the part of
// the room that all batch work uses.
type OutlookRisks struct {
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	LengthMinutes []int64 `json:"lengthMinutes,omitempty"`
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	FillPercent []int64 `json:"fillPercent,omitempty"`
	// CPUJobs is the number of jobs that began while there was room on the CPUs, and
	// Starved the number of those that got less than half of their CPU for more than a
	// tenth of their length.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	CPUJobs []int64 `json:"cpuJobs,omitempty"`
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Starved []int64 `json:"starved,omitempty"`
	// CPUDeviation is the standard deviation of Starved, by how much days differ, because
	// jobs of one day are alike; rounded up. CPUFree is the number of days with jobs less
	// one; below 1, there is no deviation.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	CPUDeviation []int64 `json:"cpuDeviation,omitempty"`
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	CPUFree []int64 `json:"cpuFree,omitempty"`
	// MemoryJobs is the number of jobs that began while there was room in memory, and
	// Evicted the number of those for whose memory there was no room later.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	MemoryJobs []int64 `json:"memoryJobs,omitempty"`
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Evicted []int64 `json:"evicted,omitempty"`
	// MemoryDeviation and MemoryFree are the same for Evicted.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	MemoryDeviation []int64 `json:"memoryDeviation,omitempty"`
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	MemoryFree []int64 `json:"memoryFree,omitempty"`
}

// OutlookHurt is a service that waited for other work, or that its own limit held back.
type OutlookHurt struct {
	// Service is a pod with its namespace, or other work of the node.
	Service string `json:"service"`
	// By is the work for which it waited. Empty: its own CPU limit held it back.
	By string `json:"by,omitempty"`
	// Minutes is the number of minutes in which it was hurt, LostSeconds the sum of
	// its waits, or of its throttling.
	Minutes     int64 `json:"minutes"`
	LostSeconds int64 `json:"lostSeconds"`
}
