package testbed

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"text/template"
	"time"

	"golang.org/x/sys/unix"

	"tenon.sh/tenon/internal/agent/loop"
	memoryqos "tenon.sh/tenon/internal/decide/memory"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// tenondPatience is the time that tenond may take to complete its first tick.
const tenondPatience = 10 * time.Second

// A TenondConfig is the configuration of tenond in an experiment.
type TenondConfig struct {
	Period    time.Duration
	CPUs      unit.CPUSet // CPUs that tenond manages; empty: all
	Rules     []TenondRule
	Suppress  bool
	Threshold int // threshold of Suppress in percent
	// SuppressPolicy is the policy of Suppress; empty: a quota.
	SuppressPolicy string
	Cache          bool           // resctrlQOS
	Isolate        bool           // cpuQOS
	Mechanism      node.Mechanism // the pinned isolation mechanism; empty: the strongest one
	NoSlices       bool           // Tenon sets no long slices; only with an empty Mechanism
	// NoDelays and NoPressure switch off events of the kernel.
	NoDelays, NoPressure bool
	// Memory is the memoryQOS of the classes.
	Memory memoryqos.Config
}

// A TenondRule gives a cgroup its class. A Request or a Limit of 0 has no
// effect.
type TenondRule struct {
	Name           string
	Class          node.Class
	Cgroup         node.CgroupPath
	Request, Limit unit.Bytes // of memory
	BatchCPU       unit.MilliCPU
	Objective      time.Duration // objective for the run-queue delay
}

var tenondText = template.Must(template.New("tenon.yaml").Parse(`apiVersion: tenon.sh/v1alpha1
kind: NodeConfig
period: {{.Period}}
{{with .CPUs.String}}cpus: "{{.}}"
{{end}}{{if or .NoDelays .NoPressure}}signals: {runQueueDelay: {{if .NoDelays}}off{{else}}auto{{end}}, pressure: {{if .NoPressure}}off{{else}}auto{{end}}}
{{end}}rules:
{{range .Rules}}- name: {{.Name}}
  class: {{.Class}}
  cgroups: ["{{.Cgroup}}"]
{{if .Request}}  requests: {memory: "{{.Request}}"}
{{end}}{{if .Limit}}  limits: {memory: "{{.Limit}}"}
{{end}}{{if .BatchCPU}}  limits: {cpu: "{{printf "%d" .BatchCPU}}m"}
{{end}}{{if .Objective}}  objective: {runQueueDelay: {{.Objective}}}
{{end}}{{end}}resource-threshold-config:
  enable: {{.Suppress}}
{{if .Suppress}}  cpuSuppressThresholdPercent: {{.Threshold}}
  cpuSuppressPolicy: {{or .SuppressPolicy "cfsQuota"}}
{{end}}resource-qos-config:
{{with .Mechanism}}  policies: {cpuIsolation: "{{.}}"}
{{else}}  policies: {cpuIsolationTrials: false{{if .NoSlices}}, cpuIsolationLongSlices: false{{end}}}
{{end}}  lsClass:
    cpuQOS: {enable: {{.Isolate}}}
{{if .Cache}}    resctrlQOS: {enable: true}
{{end}}{{with .Of "LS"}}    memoryQOS: {enable: true, minLimitPercent: {{printf "%d" .MinPercent}}, lowLimitPercent: {{printf "%d" .LowPercent}}}
{{end}}  beClass:
    cpuQOS: {enable: {{.Isolate}}}
{{if .Cache}}    resctrlQOS: {enable: true}
{{end}}{{with .Of "BE"}}    memoryQOS: {enable: true, throttlingPercent: {{printf "%d" .ThrottlingPercent}}}
{{end}}`))

// Of returns the memory strategy of a class, or nil if there is none.
func (c TenondConfig) Of(class string) *memoryqos.Shares {
	shares, asked := c.Memory.Classes[node.Class(class)]
	if !asked {
		return nil
	}
	return &shares
}

// Record returns the text for experiment.json: the command line and the
// configuration of tenond.
func (c TenondConfig) Record(agent string) string {
	text, err := c.Text()
	if err != nil {
		return err.Error()
	}
	command := tenondCommand(filepath.Base(agent), "tenon.yaml", "STATE")
	return strings.Join(command, " ") + "\n\n" + string(text)
}

// Text returns the configuration file.
func (c TenondConfig) Text() ([]byte, error) {
	var b bytes.Buffer
	err := tenondText.Execute(&b, c)
	return b.Bytes(), err
}

// Tenond starts a tenond, which replaces the loop in the lab itself. The rules
// of its configuration find the workloads by their cgroups, like any service
// that Tenon did not start. tenond runs on the lab's CPUs, as the loop would.
func (s *Site) Tenond(ctx context.Context, c TenondConfig) (_ *AgentRunner, err error) {
	dir, remove, err := makeDirectory(StateHome())
	if err != nil {
		return nil, fmt.Errorf("make the state directory of tenond: %w", err)
	}
	g := &AgentRunner{host: s.Host, begun: time.Now(), State: dir, cancel: func() {}, done: make(chan struct{})}
	close(g.done)
	var process *Process
	g.cancel = func() {
		if process != nil {
			process.Stop(syscall.SIGTERM, 3*time.Second)
		}
		_ = remove()
	}
	defer func() {
		if err != nil {
			g.cancel()
		}
	}()
	config := filepath.Join(dir, "tenon.yaml")
	text, err := c.Text()
	if err == nil {
		err = os.WriteFile(config, text, 0o600)
	}
	if err != nil {
		return nil, fmt.Errorf("write the configuration of tenond: %w", err)
	}
	ready := make(chan struct{})
	process, err = Start(s.Host, Child{
		Name: "tenond", CPUs: s.Place.Lab,
		Argv:   tenondCommand(s.Given.Agent, config, dir),
		stderr: &logLines{each: func(l logLine) { g.observeLog(l, ready) }},
	})
	if err != nil {
		return nil, err
	}
	select {
	case <-ready:
		return g, nil
	case <-process.Done():
		return nil, errors.Join(process.Err(), process.EndedEarly())
	case <-time.After(tenondPatience):
		return nil, fmt.Errorf("tenond is not ready after %v%s", tenondPatience, QuoteOutput(process.Stderr.Bytes()))
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// StateHome returns a directory on tmpfs for the state of tenond, because every
// tick writes to it. If there is no tmpfs, it returns the directory for
// temporary files.
func StateHome() string {
	for _, dir := range []string{"/run", "/dev/shm"} {
		var st unix.Statfs_t
		if unix.Statfs(dir, &st) == nil && st.Type == unix.TMPFS_MAGIC && unix.Access(dir, unix.W_OK) == nil {
			return dir
		}
	}
	return os.TempDir()
}

// tenondCommand returns the command that starts tenond. The watchdog is
// disabled, because it would outlive a lab that is killed.
func tenondCommand(agent, config, state string) []string {
	return []string{agent, "--config", config, "--state-dir", state, "--no-watchdog", "--metrics", "", "--log-format", "json", "--log-level", "debug"}
}

// observeLog reads four things from the log of tenond: the writes, the
// isolation mechanism, the faults, and when tenond is ready.
func (g *AgentRunner) observeLog(l logLine, ready chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	at := time.Since(g.begun).Seconds()
	switch {
	case l.Message == loop.LogReady:
		close(ready)
	case l.Message == loop.LogMechanism:
		g.selection = node.Selection{Mechanism: l.Mechanism, Why: l.Reason}
	case l.Message == loop.LogWritten:
		g.writes = append(g.writes, fmt.Sprintf("%.2fs %s %s %s -> %s  # %s", at, l.Cgroup, l.File, l.From, l.To, l.Reason))
	case l.Level == "ERROR" && len(g.faults) < 10:
		g.faults = append(g.faults, fmt.Sprintf("tenond failed after %.2fs: %s: %s", at, l.Message, l.Error))
	}
}

// A logLine is the part of a line of tenond's log that the lab reads.
type logLine struct {
	Level     string         `json:"level"`
	Message   string         `json:"msg"`
	Cgroup    string         `json:"cgroup"`
	File      string         `json:"file"`
	From      string         `json:"from"`
	To        string         `json:"to"`
	Reason    string         `json:"reason"`
	Mechanism node.Mechanism `json:"mechanism"`
	Error     string         `json:"error"`
}

// logLines is a writer that passes every complete line to the function each.
type logLines struct {
	each func(logLine)
	rest []byte
}

// Write passes the lines that b completes to the function each.
func (w *logLines) Write(b []byte) (int, error) {
	w.rest = append(w.rest, b...)
	for {
		line, after, complete := bytes.Cut(w.rest, []byte{'\n'})
		if !complete {
			return len(b), nil
		}
		w.rest = after
		var l logLine
		if json.Unmarshal(line, &l) == nil {
			w.each(l)
		}
	}
}
