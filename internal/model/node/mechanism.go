package node

import "slices"

// A Mechanism is an isolation mechanism: a means by which the kernel keeps BE
// off the CPUs of LS.
type Mechanism string

// The isolation mechanisms. MechanismTable describes them.
const (
	MechanismVendor    Mechanism = "vendor"
	MechanismSchedExt  Mechanism = "sched_ext"
	MechanismCoreSched Mechanism = "core_sched"
	MechanismSiblings  Mechanism = "siblings"
	MechanismIdle      Mechanism = "cpu.idle"
	MechanismWeight    Mechanism = "weight"
)

// The features that only a mechanism takes. Each has the name of the kernel
// interface that provides it.
const (
	FeatureSchedExt  Feature = "sched_ext"
	FeatureCoreSched Feature = "core_sched"
)

// The knobs by which mechanisms set an attribute of threads.
const (
	// FilePolicy is the scheduling policy of the threads in and below a cgroup.
	FilePolicy File = "policy"
	// FileCookie is the core-scheduling cookie of the threads in and below a cgroup.
	FileCookie File = "cookie"
)

// Expels says on which siblings of LS work a mechanism lets no BE thread run.
type Expels uint8

// The values of Expels.
const (
	ExpelsNone    Expels = iota // BE threads may run there, always or for a while
	ExpelsByClass               // the siblings of the classes that the setting groupIdentity names
	ExpelsAll
)

// A MechanismRow holds what is known of a mechanism before any node is looked
// at. Package decide/isolation adds the conditions and the wants of mechanisms
// that need more than a feature and an attribute of threads.
type MechanismRow struct {
	Mechanism Mechanism
	// Needs lists features. A node needs at least one of them. It is empty if
	// every kernel has the mechanism, or if it takes no feature of its own.
	Needs []Feature
	// Instead says what Tenon uses if a feature in Needs is missing. The marks of
	// vendors' kernels have texts of their own in VendorMarks.
	Instead string
	// Attribute is the knob by which the mechanism sets an attribute of BE
	// threads, or "". Files lists its other knobs. All of them belong to this
	// mechanism alone: if the kernel refuses one, the mechanism has failed.
	Attribute File
	Files     []File
	// SiblingsOnly means that the mechanism has no effect where no CPU has a sibling.
	SiblingsOnly bool
	Expels       Expels
	// BelowAll means that BE threads run below the threads of all other cgroups,
	// wherever their own cgroup is. Then they need no long slices.
	BelowAll bool
	// Below means that BE has this mechanism below each stronger one.
	Below bool
	// Attended means that the mechanism needs a running loop: new threads start,
	// a service may change its CPUs, or the scheduler needs a heartbeat.
	Attended bool
	// FollowsLS means that the run time of LS on each CPU must be counted.
	FollowsLS bool

	// Mode is the name of the mode in the experiments of the lab, without the
	// prefix "tenon-". Title is its heading, and Adds says in a line of help what
	// it gives the batch work.
	Mode, Title, Adds string
}

// MechanismTable has a row for each mechanism in the preference order: the first
// mechanism isolates best, and needs most features of the kernel.
var MechanismTable = []MechanismRow{
	// The marks of cgroups on a vendor's kernel, which isolates them by the mark:
	// Group Identity, or the QoS levels of openEuler.
	{
		Mechanism: MechanismVendor, Needs: marks(), Files: []File{FileIdentity}, Expels: ExpelsByClass, BelowAll: true,
		Mode: "vendor", Title: "vendor kernel", Adds: "the QoS files of a vendor's kernel",
	},
	// A sched_ext scheduler for BE threads. The kernel runs the threads of all
	// other scheduling classes first. The scheduler runs no BE thread on the
	// sibling of a CPU that runs an LS thread (Linux 6.12).
	{
		Mechanism: MechanismSchedExt, Needs: []Feature{FeatureSchedExt}, Attribute: FilePolicy, Files: []File{FileScheduler}, Expels: ExpelsByClass, BelowAll: true,
		Attended: true, Instead: "core scheduling, or CPU sets beside LS, and cpu.idle",
		Mode: "scx", Title: "sched_ext", Adds: "and Tenon's sched_ext scheduler for the threads of the batch work",
	},
	// A core-scheduling cookie on BE threads. While they run on a core, the
	// kernel runs no threads without this cookie there (Linux 5.14).
	{
		Mechanism: MechanismCoreSched, Needs: []Feature{FeatureCoreSched}, Attribute: FileCookie, SiblingsOnly: true, Expels: ExpelsAll,
		Attended: true, Instead: "CPU sets that keep BE off the siblings of LS, where there is SMT",
		Mode: "coresched", Title: "core scheduling", Adds: "and a core-scheduling cookie on the threads of the batch work",
	},
	// CPUs that the cpusets of BE lack: if LS ran on a CPU a short time ago, BE
	// must not use the sibling of this CPU. The cpusets follow LS once a tick, and
	// BE keeps its minimum even beside LS, so the siblings are never surely clear.
	{
		Mechanism: MechanismSiblings, SiblingsOnly: true, FollowsLS: true,
		Attended: true,
		Mode:     "siblings", Title: "siblings", Adds: "and a CPU set that keeps the batch work off the siblings of the service's CPUs",
	},
	// cpu.idle alone (Linux 5.15).
	{
		Mechanism: MechanismIdle, Needs: []Feature{FeatureCPUIdle}, Below: true,
		Instead: "the least CPU weight for BE (cpu.weight 1, cpu.shares 2)",
		Mode:    "idle", Title: "cpu.idle", Adds: "cpu.idle",
	},
	// The least weight for BE, on kernels without cpu.idle and as the floor.
	{Mechanism: MechanismWeight, Below: true, Mode: "weight", Title: "least weight", Adds: "the least CPU weight"},
}

// Mechanisms is the preference order, strongest first.
var Mechanisms = func() []Mechanism {
	all := make([]Mechanism, len(MechanismTable))
	for i := range MechanismTable {
		all[i] = MechanismTable[i].Mechanism
	}
	return all
}()

// Row returns the row of a mechanism. If m is no mechanism, only the name is set.
func (m Mechanism) Row() MechanismRow {
	if i := slices.Index(Mechanisms, m); i >= 0 {
		return MechanismTable[i]
	}
	return MechanismRow{Mechanism: m}
}

// MechanismOf returns the mechanism to which alone a knob belongs, or "" if the
// knob belongs to none.
func MechanismOf(f File) Mechanism {
	for i := range MechanismTable {
		if r := &MechanismTable[i]; f != "" && (r.Attribute == f || slices.Contains(r.Files, f)) {
			return MechanismTable[i].Mechanism
		}
	}
	return ""
}

// Needs returns the feature without which no cgroup has the knob. It is empty for
// knobs outside of isolation, and for the marks, which several features provide.
func (f File) Needs() Feature {
	switch needs := MechanismOf(f).Row().Needs; {
	case f == FileSlice:
		return FeatureEEVDFSlice
	case f.OrdersScheduler():
		return FeatureSchedExt
	case len(needs) == 1:
		return needs[0]
	}
	return ""
}

// Instead says what Tenon uses on a node without a feature, or returns "" if no
// mechanism needs the feature.
func (f Feature) Instead() string {
	for _, v := range VendorMarks {
		if v.Can == f {
			return v.Instead
		}
	}
	for i := range MechanismTable {
		if slices.Contains(MechanismTable[i].Needs, f) {
			return MechanismTable[i].Instead
		}
	}
	return ""
}

// marks returns the features of the vendors' kernels that can mark cgroups.
func marks() []Feature {
	all := make([]Feature, len(VendorMarks))
	for i, v := range VendorMarks {
		all[i] = v.Can
	}
	return all
}
