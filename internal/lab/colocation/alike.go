package colocation

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"tenon.sh/tenon/internal/lab/report"
)

// An identity tells experiments apart. The folder of an experiment and the
// submission that was made of it have the same identity. If both counted, the
// interval over experiments would be too narrow.
type identity struct {
	started  int64 // a submission has no fractions of a second
	seed     uint64
	requests int64 // of the first run; two machines may start in the same second
	waited   time.Duration
}

func identityOf(e Experiment, runs []Run) identity {
	first := slices.MinFunc(runs, func(a, b Run) int { return cmp.Compare(a.Index, b.Index) })
	return identity{e.Started.Unix(), e.Seed, first.Requests, first.RunDelay}
}

// differences lists in what the experiments differ. Experiments with different
// services or batch work have true ratios of their own, so their common ratio
// says little about each of them.
func differences(names []string, experiments []Experiment) []string {
	facts := []struct {
		name string
		of   func(Experiment) string
	}{
		{"service", serviceOf}, {"load", loadOf}, {"batch work", batchOf}, {"place", placeOf},
		{"CPU request of the batch pod in mode burstable", requestOf}, {"isolation by Tenon", isolationOf},
	}
	var list []string
	for _, f := range facts {
		var values []string
		in := map[string][]string{}
		for i, e := range experiments {
			v := f.of(e)
			if v == "" {
				continue // the experiment has no such fact
			}
			if in[v] == nil {
				values = append(values, v)
			}
			in[v] = append(in[v], names[i])
		}
		if len(values) < 2 {
			continue
		}
		for i, v := range values {
			values[i] = fmt.Sprintf("%s in %s", v, strings.Join(in[v], ", "))
		}
		list = append(list, f.name+": "+strings.Join(values, "; "))
	}
	return list
}

func serviceOf(e Experiment) string {
	if e.Own == nil {
		return "nginx"
	}
	return e.Own.Service
}

// loadOf describes the load without the port, which differs from run to run.
func loadOf(e Experiment) string {
	load := fmt.Sprintf("%g %% of the CPU", e.LoadPercent)
	if e.Own == nil {
		return load
	}
	if u, err := url.Parse(e.Own.Load); err == nil && u.Host != "" {
		return load + ", " + u.Scheme + " " + u.RequestURI()
	}
	return load + ", " + e.Own.Load
}

func batchOf(e Experiment) string {
	if e.Own == nil {
		return "ffmpeg"
	}
	var names []string
	for _, w := range e.Own.Batch {
		names = append(names, w.Name)
	}
	return strings.Join(names, " and ")
}

func placeOf(e Experiment) string {
	if e.Kubernetes != nil {
		return "pods of a cluster"
	}
	return "cgroups of one machine"
}

// oldBatchRequest is the CPU request of the batch pod for each tested CPU, in
// thousandths of a CPU, in experiments whose records do not name it.
const oldBatchRequest = 625

// requestOf returns the request for each tested CPU.
func requestOf(e Experiment) string {
	if !slices.Contains(e.Modes, report.Burstable) {
		return ""
	}
	request := cmp.Or(e.BatchRequest, oldBatchRequest*e.TestedCPUs.Len())
	return fmt.Sprintf("%d m for each tested CPU", request/max(e.TestedCPUs.Len(), 1))
}

// isolationOf returns the names of the isolation mechanisms. Records of one
// machine explain why the least weight was in use, and those of a cluster do
// not.
func isolationOf(e Experiment) string {
	var names []string
	for _, m := range e.Machine.Mechanisms {
		name, _, _ := strings.Cut(m, " (")
		if strings.HasPrefix(name, "cpu.weight") {
			name = "weight"
		}
		if !strings.HasPrefix(name, "CPU suppress") {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}
