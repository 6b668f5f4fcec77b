package report

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"tenon.sh/tenon/internal/lab/page"
	"tenon.sh/tenon/internal/model/unit"
)

// A Header has what every experiment.json says, whatever the kind of the
// experiment. The record of a kind embeds it and adds its own settings.
type Header struct {
	Schema  int       `json:"schema"`         // 1
	Kind    string    `json:"kind,omitempty"` // empty: colocation
	Started time.Time `json:"started"`
	Command []string  `json:"command"`
	Version string    `json:"tenon_version"`
	Modes   []Mode    `json:"modes,omitempty"` // empty: the cells of the experiment are no modes
	Blocks  int       `json:"blocks"`          // configured; 0: until resolved
	// Ended is the way in which the experiment ended. It is empty if the
	// experiment is running, was killed, or was run by an older version.
	Ended      End         `json:"ended,omitempty"`
	Seed       uint64      `json:"seed,omitempty"`
	TestedCPUs unit.CPUSet `json:"tested_cpus,omitzero"`
	ClientCPUs unit.CPUSet `json:"client_cpus,omitzero"` // of the load, or of tenond and the lab
	// Refused lists the parts that the machine cannot run, with the reasons.
	Refused  []string          `json:"refused,omitempty"`
	Machine  Machine           `json:"machine,omitzero"`
	Caveats  []string          `json:"caveats,omitempty"`
	Versions map[string]string `json:"versions,omitempty"` // of nginx, ffmpeg, …
	// Tenond is the command line and the configuration of tenond in each mode.
	// If a mode has no entry, it used the lab's own loop.
	Tenond map[Mode]string `json:"tenond,omitempty"`
}

// Head returns the header of a record.
func (h *Header) Head() *Header { return h }

// A Headed is the content of an experiment.json: a pointer to a record that
// embeds a Header.
type Headed interface{ Head() *Header }

// An End is the way in which an experiment ended.
type End string

// The values of End. With the first two, the time of the end did not depend on
// the results.
const (
	EndPlanned End = "planned" // at a planned look
	EndTime    End = "time"    // another block did not fit into the time
	EndHand    End = "hand"    // the user stopped it
	EndFailed  End = "failed"
)

// Planned reports whether the time of the end did not depend on the results.
func (e End) Planned() bool { return e == EndPlanned || e == EndTime }

// Machine describes where the experiment ran.
type Machine struct {
	Kernel         string   `json:"kernel"`
	OS             string   `json:"os"`
	CPUModel       string   `json:"cpu_model"`
	CPUs           int      `json:"cpus"`
	SMT            bool     `json:"smt"`
	Virtualization string   `json:"virtualization"`     // "none", "kvm", …
	Emulated       bool     `json:"emulated,omitempty"` // emulated by a program, so that times mean nothing
	CgroupVersion  int      `json:"cgroup_version"`
	MemoryBytes    int64    `json:"memory_bytes"`
	Governor       string   `json:"governor,omitempty"`
	Mechanisms     []string `json:"mechanisms"` // mechanisms that Tenon used in its modes
}

// Known reports whether the machine is described. An imported experiment does
// not describe it.
func (m Machine) Known() bool { return m.Kernel != "" || m.CPUs > 0 }

// Page begins the page of an experiment with what the header says. files names
// the raw data beside experiment.json.
func (h Header) Page(title, files string) page.Page {
	p := page.Page{Title: title, Caveats: h.Caveats, Files: files, Setup: []page.Fact{{Name: "command", Text: strings.Join(h.Command, " "), Code: true}}}
	where := []string{h.Started.UTC().Format("2006-01-02 15:04 UTC")}
	if m := h.Machine; m.Known() {
		where = append(where, m.size(), "Linux "+m.Kernel)
	}
	p.Meta = strings.Join(append(where, "tenon "+h.Version), " · ")
	fact := func(name, text string) {
		if text != "" {
			p.Setup = append(p.Setup, page.Fact{Name: name, Text: text})
		}
	}
	if h.Blocks > 0 {
		fact("blocks planned", strconv.Itoa(h.Blocks))
	}
	if !h.TestedCPUs.Empty() {
		fact("tested CPUs", h.TestedCPUs.String())
	}
	if !h.ClientCPUs.Empty() {
		fact("other CPUs of the experiment", h.ClientCPUs.String())
	}
	if m := h.Machine; m.Known() {
		fact("operating system", fmt.Sprintf("%s, Linux %s, cgroup v%d", m.OS, m.Kernel, m.CgroupVersion))
		text := m.size()
		if m.MemoryBytes > 0 {
			text += fmt.Sprintf(", %.1f GiB", float64(m.MemoryBytes)/(1<<30))
		}
		if m.Governor != "" {
			text += ", governor " + m.Governor
		}
		fact("machine", text)
		fact("mechanisms of tenon", strings.Join(m.Mechanisms, ", "))
	}
	for _, name := range slices.Sorted(maps.Keys(h.Versions)) {
		fact(name, h.Versions[name])
	}
	for _, mode := range slices.Sorted(maps.Keys(h.Tenond)) {
		p.Details = append(p.Details, page.Detail{Title: fmt.Sprintf("command line and configuration of tenond in mode %s", mode), Hidden: h.Tenond[mode]})
	}
	return p
}

// size describes the CPUs of a machine.
func (m Machine) size() string {
	text := fmt.Sprintf("%d CPUs", m.CPUs)
	if m.CPUModel != "" {
		text = m.CPUModel + ", " + text
	}
	if m.SMT {
		text += " with SMT"
	}
	switch m.Virtualization {
	case "": // not known
	case "none":
		text += ", bare metal"
	default:
		text += fmt.Sprintf(", virtual machine (%s)", m.Virtualization)
	}
	return text
}
