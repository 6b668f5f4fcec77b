package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"text/template"
	"time"
)

// tenondPatience is how long tenond may take until its first turn is done.
const tenondPatience = 10 * time.Second

// tenondConfig is what a user would write for the two pods of the experiment.
var tenondConfig = template.Must(template.New("tenon.yaml").Parse(`apiVersion: tenon.sh/v1alpha1
kind: NodeConfig
period: {{.Period}}
cpus: "{{.CPUs}}"
rules:
- name: nginx
  class: LS
  cgroups: ["{{.LS}}"]
- name: ffmpeg
  class: BE
  cgroups: ["{{.BE}}"]
resource-threshold-config:
  enable: {{.Suppress}}
  cpuSuppressThresholdPercent: {{.Threshold}}
  cpuSuppressPolicy: cfsQuota
resource-qos-config:
  beClass:
    cpuQOS: {enable: true}
`))

// governOutside lets a tenond do what govern does: it finds nginx and ffmpeg
// by its rules, as it would find services that Tenon did not start. It runs on
// the client's CPUs, where the lab's own loop runs too.
func (b *bench) governOutside(ctx context.Context, p pods, suppress bool) (g *governor, err error) {
	dir, err := os.MkdirTemp("", "tenon-lab-")
	if err != nil {
		return nil, fmt.Errorf("make the state directory of tenond: %w", err)
	}
	g = &governor{b: b, pods: p, begun: time.Now(), cancel: func() {}, done: make(chan struct{})}
	close(g.done)
	var process *Process
	g.cancel = func() {
		if process != nil {
			process.Stop(syscall.SIGTERM, 3*time.Second)
		}
		_ = os.RemoveAll(dir)
	}
	defer func() {
		if err != nil {
			g.cancel()
			g = nil
		}
	}()
	var text bytes.Buffer
	if err := tenondConfig.Execute(&text, map[string]any{
		"Period": governPeriod, "CPUs": p.tested, "LS": p.nginxPod(), "BE": p.ffmpegPod(),
		"Suppress": suppress, "Threshold": watermark,
	}); err != nil {
		return nil, fmt.Errorf("write the configuration of tenond: %w", err)
	}
	config := filepath.Join(dir, "tenon.yaml")
	if err := os.WriteFile(config, text.Bytes(), 0o600); err != nil {
		return nil, fmt.Errorf("write the configuration of tenond: %w", err)
	}
	ready := make(chan struct{})
	process, err = start(b.host, child{
		name: "tenond", cpus: b.place.Client,
		// Its watchdog would outlive a lab that is killed.
		argv:   []string{b.Agent, "--config", config, "--state-dir", dir, "--no-watchdog", "--metrics", "", "--log-format", "json", "--log-level", "debug"},
		stderr: &logLines{each: func(l logLine) { g.observeLog(l, ready) }},
	})
	if err != nil {
		return nil, err
	}
	select {
	case <-ready:
		return g, nil
	case <-process.Done():
		return nil, errors.Join(process.Err(), process.endedEarly())
	case <-time.After(tenondPatience):
		return nil, fmt.Errorf("tenond is not ready after %v%s", tenondPatience, quoteOutput(process.stderr.Bytes()))
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// observeLog takes the writes, the faults and the readiness from tenond's log.
func (g *governor) observeLog(l logLine, ready chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	at := time.Since(g.begun).Seconds()
	switch {
	case l.Message == "ready":
		close(ready)
	case l.Message == "written":
		g.writes = append(g.writes, fmt.Sprintf("%.2fs %s %s %s -> %s  # %s", at, l.Cgroup, l.File, l.From, l.To, l.Reason))
	case l.Level == "ERROR" && len(g.faults) < 10:
		g.faults = append(g.faults, fmt.Sprintf("tenond failed after %.2fs: %s: %s", at, l.Message, l.Error))
	}
}

// A logLine is what the lab reads of a line of tenond's log.
type logLine struct {
	Level   string `json:"level"`
	Message string `json:"msg"`
	Cgroup  string `json:"cgroup"`
	File    string `json:"file"`
	From    string `json:"from"`
	To      string `json:"to"`
	Reason  string `json:"reason"`
	Error   string `json:"error"`
}

// logLines calls each for every complete line that is written to it.
type logLines struct {
	each func(logLine)
	rest []byte
}

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
