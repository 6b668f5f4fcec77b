package sim

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"tenon.sh/tenon/internal/node"
	"tenon.sh/tenon/internal/unit"
)

// canIO answers what the node can do about block I/O.
func (n *Node) canIO(can node.Capabilities) {
	verdicts := map[node.Mechanism]node.Verdict{
		node.MechIOMax: node.Yes, node.MechIOWeight: node.Yes, node.MechIOLatency: node.Yes, node.MechBFQWeight: node.No,
	}
	if n.version == 1 {
		verdicts[node.MechIOWeight], verdicts[node.MechIOLatency], verdicts[node.MechBFQWeight] = node.No, node.No, node.Yes
	}
	for m, v := range verdicts {
		can[m] = node.Answer{Verdict: v, Why: "simulated"}
	}
}

// readIO reads a knob of block I/O.
func (n *Node) readIO(g *group, f node.File) (node.Value, error) {
	file := map[node.File]string{
		node.FileIOMax: "io.max", node.FileIOWeight: "io.weight", node.FileIOLatency: "io.latency", node.FileBFQWeight: "io.bfq.weight",
	}[f]
	if n.version == 1 {
		file = map[node.File]string{node.FileIOMax: throttleFiles[0], node.FileBFQWeight: "blkio.bfq.weight_device"}[f]
	}
	text, exists := g.files[file]
	if !exists {
		return nil, fmt.Errorf("read %s: %w", f, syscall.ENOENT)
	}
	switch f {
	case node.FileIOMax:
		return n.limitsOf(g), nil
	case node.FileIOLatency:
		targets := map[unit.Device]time.Duration{}
		for d, body := range linesIn(text) {
			us, _ := strconv.ParseInt(strings.TrimPrefix(body, "target="), 10, 64)
			targets[d] = time.Duration(us) * time.Microsecond
		}
		return node.IOLatencyOf(targets), nil
	}
	first, _, _ := strings.Cut(text, "\n")
	other, _ := strconv.ParseInt(strings.TrimPrefix(first, "default "), 10, 64)
	return node.IOWeightOf(other, nil), nil // nothing weighs its disk
}

func (n *Node) limitsOf(g *group) node.IOMax {
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
	if n.version == 1 {
		for i, file := range throttleFiles {
			for d, body := range linesIn(g.files[file]) {
				set(d, i, body)
			}
		}
		return node.IOMaxOf(limits)
	}
	for d, body := range linesIn(g.files["io.max"]) {
		for k, v := range ratesOf(body) {
			set(d, slices.Index(limitKeys, k), v)
		}
	}
	return node.IOMaxOf(limits)
}

// filesOfIO lists the writes that make v the value of a knob of block I/O.
func (n *Node) filesOfIO(k node.Knob, v node.Value) [][2]string {
	g := n.groups[k.Cgroup]
	var files [][2]string
	switch v := v.(type) {
	case node.IOMax:
		now, to := n.limitsOf(g).Limits(), v.Limits()
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
					text = map[int]string{1: "0", 2: "max"}[n.version]
				}
				if n.version == 1 {
					files = append(files, [2]string{throttleFiles[i], d.String() + " " + text})
				}
				line += " " + limitKeys[i] + "=" + text
			}
			if n.version == 2 {
				files = append(files, [2]string{"io.max", line})
			}
		}
	case node.IOLatency:
		now, _ := n.readIO(g, k.File)
		targets := v.Targets()
		if now, is := now.(node.IOLatency); is {
			for d := range now.Targets() {
				targets[d] += 0 // one that does not stay is 0
			}
		}
		for d, t := range targets {
			files = append(files, [2]string{"io.latency", fmt.Sprintf("%v target=%d", d, t.Microseconds())})
		}
	case node.IOWeight:
		file := string(k.File)
		devices := file
		if n.version == 1 {
			file, devices = "blkio.bfq.weight", "blkio.bfq.weight_device"
		}
		files = append(files, [2]string{file, strconv.FormatInt(v.Default, 10)})
		for d, w := range v.Weights() {
			files = append(files, [2]string{devices, fmt.Sprintf("%v %d", d, w)})
		}
	}
	return files
}
