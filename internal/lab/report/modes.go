package report

import (
	"slices"

	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// A Mode is one way in which the service and the batch work share the tested
// CPUs. Its value is the name of the mode in the tables.
type Mode string

// The modes of the experiments. modeTable describes them.
const (
	Exclusive     Mode = "exclusive"
	ExclusiveAA   Mode = "exclusive-aa"
	ExclusiveWarm Mode = "exclusive-warm"
	// ExclusiveAwake differs from ExclusiveWarm only in the weight of the spinner.
	ExclusiveAwake Mode = "exclusive-awake"

	Default   Mode = "default"
	Default65 Mode = "default-65"
	Burstable Mode = "burstable"
	// The three sizes of the CPU requests of a batch pod, beside Burstable, which has
	// that of a published experiment.
	BurstableEighth Mode = "burstable-eighth"
	BurstableHalf   Mode = "burstable-half"
	BurstableFull   Mode = "burstable-full"

	Tenon   Mode = "tenon"
	Tenon65 Mode = "tenon-65"
	// SLOAware and SLOAwareQuota are the third mode of the published experiment on
	// colocation, whose English edition has this name. They differ in how CPU suppress
	// bounds the batch work.
	SLOAware      Mode = "slo-aware"
	SLOAwareQuota Mode = "slo-aware-quota"
	Solo          Mode = "solo"
	// Frozen is the service alone for a second, while the batch work is frozen.
	Frozen Mode = "frozen"
	// FrozenAA is Frozen once more in each round.
	FrozenAA Mode = "frozen-aa"
	// Switched is no mode, but the name of runs that switch between modes.
	Switched Mode = "switched"

	Plain     Mode = "plain"
	Nice      Mode = "nice"
	SchedIdle Mode = "sched-idle"

	TenonNoSlices  Mode = "tenon-no-slices"
	TenonWeight    Mode = "tenon-weight"
	TenonIdle      Mode = "tenon-idle"
	TenonSiblings  Mode = "tenon-siblings"
	TenonCoreSched Mode = "tenon-coresched"
	TenonSCX       Mode = "tenon-scx"
	TenonVendor    Mode = "tenon-vendor"

	Tenond Mode = "tenond"

	Events Mode = "events"
	Ticks  Mode = "tick"
	PSI    Mode = "psi"
	IdleBE Mode = "idle"
)

// A ModeSpec describes a mode: which programs run, how the mode is presented,
// and its line in the help.
type ModeSpec struct {
	Mode Mode

	// The programs that run beside the service.
	Batch  bool // the batch work runs
	Alone  bool // the service does not run
	Frozen bool // the batch work is frozen
	// Eighths says that the batch work runs in a pod with CPU requests, of so many
	// eighths of what the service requests.
	Eighths int
	Spinner bool // an idle-class spinner keeps the CPUs awake
	// LeastWeight means that the spinner has the least weight, and is not in
	// the idle class. Then the CPUs look busy to the kernel. A CPU that has
	// only threads of the idle class looks idle, and the kernel sends other
	// threads of the machine to it.
	LeastWeight bool
	Paced       bool // the batch work reads so fast that the CPU use equals that of a mode with Suppress
	Tenon       bool // Tenon's policies write the knobs
	Suppress    bool // Tenon uses the watermark (CPU suppress)
	// AllFeatures means that Tenon has the ConfigMap of the published experiment
	// (examples.ThirdMode): besides CPU suppress and CPU QoS, batch resources, and
	// shares of the L3 cache and of the memory bandwidth where the hardware has them.
	AllFeatures bool
	Quota       bool           // CPU suppress bounds the batch work by a quota, although AllFeatures is set
	Mechanism   node.Mechanism // the pinned isolation mechanism; empty: Tenon selects one
	NoSlices    bool           // Tenon sets no long slices
	Cluster     bool           // the mode can run on a node of a cluster

	// Sessions means that the service and the batch work run outside of all
	// cgroups, each in its own POSIX session. The batch work then has the nice
	// value Nice and, if SchedIdle is set, the policy SCHED_IDLE.
	Sessions  bool
	Nice      int
	SchedIdle bool

	// How the mode is presented.
	Head string // heading of its column in the kernel-qos experiment; empty: its name
	Line string // CSS class of its curve, for modes with similar colours

	Help string
}

// modeTable has a row for each mode, in the order of presentation. A new mode
// needs a row in this table, or as a mechanism in node.MechanismTable, and a
// colour in page.css.
var modeTable = slices.Concat([]ModeSpec{
	{Mode: Exclusive, Cluster: true, Head: "baseline",
		Help: "the service alone: the baseline"},
	{Mode: ExclusiveAA, Cluster: true, Line: "dash",
		Help: "the same once more in each block, the A/A control: it shows what this machine can tell apart at all"},
	{Mode: ExclusiveWarm, Spinner: true, Cluster: true, Head: "baseline, awake", Line: "dots",
		Help: "the service and an idle-class spinner that keeps the CPUs awake: in a virtual machine that alone can make a service faster"},
	{Mode: ExclusiveAwake, Spinner: true, LeastWeight: true, Head: "baseline, awake and busy", Line: "dots",
		Help: "as exclusive-warm, but the spinner has the least weight, as BestEffort pods have: its CPUs look busy, so the kernel sends no other threads there"},
	{Mode: Frozen, Batch: true, Frozen: true, Line: "dash",
		Help: "the batch work frozen: the service alone, on CPUs that were busy with it a second ago"},
	{Mode: FrozenAA, Batch: true, Frozen: true, Line: "dots",
		Help: "the same once more in each round, the A/A control of modes that take turns: now and then it follows frozen"},
	{Mode: Default65, Batch: true, Paced: true, Cluster: true, Line: "dash",
		Help: "as default, with the batch work paced to the CPU use of the mode with CPU suppress"},
	{Mode: Tenon65, Batch: true, Tenon: true, Suppress: true, Cluster: true, Line: "dash",
		Help: "as tenon, and CPU suppress at 65 %"},
	{Mode: SLOAware, Batch: true, Tenon: true, Suppress: true, AllFeatures: true, Cluster: true,
		Help: "all features of the published third mode, by its ConfigMap: CPU suppress at 65 % by CPU sets, CPU QoS, batch resources, and shares of L3 cache and memory bandwidth where the hardware has them"},
	{Mode: SLOAwareQuota, Batch: true, Tenon: true, Suppress: true, AllFeatures: true, Quota: true, Cluster: true, Line: "dash",
		Help: "as slo-aware, with CPU suppress by a quota"},
	{Mode: Default, Batch: true, Cluster: true, Head: "control",
		Help: "both as Kubernetes runs them (Burstable, BestEffort)"},
	{Mode: Burstable, Batch: true, Eighths: 5, Head: "BE with requests",
		Help: "the batch work with CPU requests, as batch usually runs"},
	{Mode: BurstableEighth, Batch: true, Eighths: 1, Line: "dots",
		Help: "the batch work with CPU requests of an eighth of those of the service"},
	{Mode: BurstableHalf, Batch: true, Eighths: 4, Line: "dash",
		Help: "the batch work with CPU requests of half of those of the service"},
	{Mode: BurstableFull, Batch: true, Eighths: 8,
		Help: "the batch work with the same CPU requests as the service"},
	{Mode: Plain, Batch: true, Sessions: true,
		Help: "both without cgroups, each in a session of its own, as two logins start them"},
	{Mode: Nice, Batch: true, Sessions: true, Nice: 19,
		Help: "as plain, the batch work with nice 19"},
	{Mode: SchedIdle, Batch: true, Sessions: true, SchedIdle: true,
		Help: "as plain, the batch work in SCHED_IDLE"},
	{Mode: Tenon, Batch: true, Tenon: true, Cluster: true,
		Help: "Tenon's isolation as it begins on every node: the least weight and long slices, or the marks of a vendor's kernel"},
	{Mode: TenonNoSlices, Batch: true, Tenon: true, NoSlices: true, Line: "dots",
		Help: "as tenon without long slices: where the batch work has the least weight anyway, it is default beside Tenon's loop, which tells the two apart"},
}, mechanismModes(), []ModeSpec{
	{Mode: Tenond, Batch: true, Tenon: true,
		Help: "Tenon's memory QoS: on cgroup v2 memory.min and low for the service and memory.high for the batch work; on cgroup v1, which has none of these, the limit that the rule of the batch work names"},
	{Mode: Solo, Batch: true, Alone: true,
		Help: "the batch work alone: the yardstick of what the idle CPU can give"},

	{Mode: Events, Help: "the kernel's events wake tenond: BPF alarms, PSI triggers"},
	{Mode: PSI, Help: "PSI triggers alone (cgroup v2)"},
	{Mode: Ticks, Help: "no event wakes it: it ticks once in a second"},
	{Mode: IdleBE, Help: "events, and the spinners idle in the kernel (cpu.idle), which needs no loop: for contrast"},
})

// mechanismModes returns the modes in which Tenon uses one given isolation
// mechanism, from the weakest mechanism to the strongest.
func mechanismModes() []ModeSpec {
	var modes []ModeSpec
	for _, m := range slices.Backward(node.MechanismTable) {
		s := ModeSpec{Mode: Mode("tenon-" + m.Mode), Batch: true, Tenon: true, Mechanism: m.Mechanism, Head: m.Title, Help: m.Adds}
		if s.Mode == TenonWeight { // its colour is like that of TenonIdle
			s.Line = "dash"
		}
		modes = append(modes, s)
	}
	return modes
}

// MechanismModes lists the modes in which Tenon uses one given isolation
// mechanism, from the weakest mechanism to the strongest.
var MechanismModes = modesWhere(func(s ModeSpec) bool { return s.Mechanism != "" })

// SessionModes lists the modes without cgroups.
var SessionModes = modesWhere(func(s ModeSpec) bool { return s.Sessions })

func modesWhere(is func(ModeSpec) bool) []Mode {
	var list []Mode
	for _, s := range modeTable {
		if is(s) {
			list = append(list, s.Mode)
		}
	}
	return list
}

// Spec returns the row of a mode. If a mode has no row, only the name is set.
func (m Mode) Spec() ModeSpec {
	if i := m.rank(); i < len(modeTable) {
		return modeTable[i]
	}
	return ModeSpec{Mode: m}
}

// rank returns the position of a mode in modeTable. Modes without a row come last.
func (m Mode) rank() int {
	i := slices.IndexFunc(modeTable, func(s ModeSpec) bool { return s.Mode == m })
	if i < 0 {
		return len(modeTable)
	}
	return i
}

// BatchRequest returns the CPU request of the batch pod beside a service with a given
// request; 0: none.
func (s ModeSpec) BatchRequest(service unit.MilliCPU) unit.MilliCPU {
	return service * unit.MilliCPU(s.Eighths) / 8
}

// Isolates reports whether batch work is isolated in the mode. The spinner counts as
// batch work, because it must run only when no other work wants the CPU.
func (s ModeSpec) Isolates() bool { return s.Tenon || s.Spinner }
