package sim

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"tenon.sh/tenon/internal/machine/knob"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// canIO adds the capabilities for block I/O to can.
func (n *Node) canIO(can node.Capabilities) {
	verdicts := map[node.Feature]node.Verdict{
		node.FeatureIOMax: node.Yes, node.FeatureIOWeight: node.Yes, node.FeatureIOLatency: node.Yes, node.FeatureBFQWeight: node.No,
	}
	if n.version == 1 {
		verdicts[node.FeatureIOWeight], verdicts[node.FeatureIOLatency], verdicts[node.FeatureBFQWeight] = node.No, node.No, node.Yes
	}
	for m, v := range verdicts {
		can[m] = node.Answer{Verdict: v, Why: "simulated"}
	}
}

// ioFiles holds the files of a cgroup, and reads the values for block I/O from them.
type ioFiles struct{ knob.Files }

// text returns the content of the file that holds a knob.
func (f ioFiles) text(file node.File) (string, error) {
	name := string(file)
	if f.Version == 1 {
		name = map[node.File]string{node.FileIOMax: throttleFiles[0], node.FileBFQWeight: "blkio.bfq.weight_device"}[file]
	}
	text, exists := f.Text[name]
	if !exists {
		return "", fmt.Errorf("read %s: %w", file, syscall.ENOENT)
	}
	return text, nil
}

func (f ioFiles) max() (node.IOMax, error) {
	_, err := f.text(node.FileIOMax)
	return f.limits(), err
}

func (f ioFiles) latency() (node.IOLatency, error) {
	text, err := f.text(node.FileIOLatency)
	targets := map[unit.Device]time.Duration{}
	for d, body := range linesIn(text) {
		us, _ := strconv.ParseInt(strings.TrimPrefix(body, "target="), 10, 64)
		targets[d] = time.Duration(us) * time.Microsecond
	}
	return node.IOLatencyOf(targets), err
}

func (f ioFiles) weight(file node.File) (node.IOWeight, error) {
	text, err := f.text(file)
	first, _, _ := strings.Cut(text, "\n")
	other, _ := strconv.ParseInt(strings.TrimPrefix(first, "default "), 10, 64)
	return node.IOWeightOf(other, nil), err // the simulated disk has no weights
}

func (f ioFiles) limits() node.IOMax {
	limits := map[unit.Device]node.IOLimits{}
	set := func(d unit.Device, rate int, text string) {
		l, has := limits[d]
		if !has {
			l = node.NoIOLimits
		}
		if v, err := strconv.ParseInt(text, 10, 64); err == nil {
			*[]*int64{&l.ReadBPS, &l.WriteBPS, &l.ReadIOPS, &l.WriteIOPS}[rate] = v
		}
		limits[d] = l
	}
	if f.Version == 1 {
		for i, file := range throttleFiles {
			for d, body := range linesIn(f.Text[file]) {
				set(d, i, body)
			}
		}
		return node.IOMaxOf(limits)
	}
	for d, body := range linesIn(f.Text["io.max"]) {
		for k, v := range ratesOf(body) {
			set(d, slices.Index(limitKeys, k), v)
		}
	}
	return node.IOMaxOf(limits)
}

func (f ioFiles) ofMax(v node.IOMax) (files []knob.Writing) {
	now, to := f.limits().Limits(), v.Limits()
	for d := range now {
		if _, stays := to[d]; !stays {
			to[d] = node.NoIOLimits
		}
	}
	for d, l := range to {
		line := d.String()
		for i, r := range []int64{l.ReadBPS, l.WriteBPS, l.ReadIOPS, l.WriteIOPS} {
			text := strconv.FormatInt(r, 10)
			if r == node.NoIORate {
				text = map[int]string{1: "0", 2: "max"}[f.Version]
			}
			if f.Version == 1 {
				files = append(files, knob.Writing{File: throttleFiles[i], Text: d.String() + " " + text})
			}
			line += " " + limitKeys[i] + "=" + text
		}
		if f.Version == 2 {
			files = append(files, knob.Writing{File: "io.max", Text: line})
		}
	}
	return files
}

func (f ioFiles) ofLatency(v node.IOLatency) (files []knob.Writing) {
	now, _ := f.latency()
	targets := v.Targets()
	for d := range now.Targets() {
		targets[d] += 0 // a removed target is written as 0
	}
	for d, t := range targets {
		files = append(files, knob.Writing{File: "io.latency", Text: fmt.Sprintf("%v target=%d", d, t.Microseconds())})
	}
	return files
}

func (f ioFiles) ofWeight(of node.File, v node.IOWeight) []knob.Writing {
	file := string(of)
	devices := file
	if f.Version == 1 {
		file, devices = "blkio.bfq.weight", "blkio.bfq.weight_device"
	}
	files := []knob.Writing{{File: file, Text: strconv.FormatInt(v.Default, 10)}}
	for d, w := range v.Weights() {
		files = append(files, knob.Writing{File: devices, Text: fmt.Sprintf("%v %d", d, w)})
	}
	return files
}
