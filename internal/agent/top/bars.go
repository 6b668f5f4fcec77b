package top

import (
	"fmt"
	"strings"

	"github.com/charmbracelet/x/ansi"

	"tenon.sh/tenon/internal/agent/control"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// fewCPUs is the maximum number of CPUs for which each CPU gets its own bar.
const fewCPUs = 8

// kinds lists the parts of a bar in order. Each part has a letter and the
// classes that it adds up.
var kinds = []struct {
	letter  byte
	classes []node.Class
}{
	{'L', []node.Class{node.LSE, node.LSR, node.LS}},
	{'S', []node.Class{node.System}},
	{'B', []node.Class{node.BE}},
}

// drawUsage draws bars for the CPUs and the memory of the node.
func (m model) drawUsage() []string {
	s := m.status
	cpu, memory := map[node.Class]int64{}, map[node.Class]int64{}
	for _, c := range s.Classes {
		cpu[c.Class], memory[c.Class] = int64(c.CPU.Or(0)), int64(c.Memory.Or(0)) // a bar of unknown length is not drawn
	}
	lines := []string{
		m.bar("cpu", m.width, cpu, int64(s.Node.CPU.Or(0)), int64(unit.CPUs(s.Node.CPUs)),
			fmt.Sprintf("%s of %v", control.Shown(s.Node.CPU, unit.MilliCPU.String), unit.CPUs(s.Node.CPUs))),
	}
	if len(s.Node.Busy) > fewCPUs {
		lines = append(lines, m.drawCells()...)
	} else {
		lines = append(lines, m.drawCPUs()...)
	}
	return append(lines, m.bar("memory", m.width, memory, int64(s.Node.Memory.Or(0)), int64(s.Node.MemoryTotal.Or(0)),
		fmt.Sprintf("%s of %s", control.Shown(s.Node.Memory, control.Size), control.Shown(s.Node.MemoryTotal, control.Size))))
}

// drawCPUs draws a bar for each CPU, in two columns.
func (m model) drawCPUs() []string {
	half := m.width/2 - 1
	var lines []string
	for i, c := range m.status.Node.Busy {
		parts := map[node.Class]int64{}
		for class, used := range c.Class {
			parts[class] = int64(used)
		}
		one := m.bar(fmt.Sprintf("cpu%d", c.ID), half, parts, int64(c.Busy), 1000, fmt.Sprintf("%4d%%", c.Busy/10))
		if i%2 == 0 {
			lines = append(lines, one)
		} else {
			lines[len(lines)-1] += "  " + one
		}
	}
	return lines
}

// bar draws "name [LLLBB|...] figures" in the given width: the usage of each
// class, the rest of the usage (used), and the free part of the total.
func (m model) bar(name string, width int, parts map[node.Class]int64, used, total int64, figures string) string {
	const widest = 6
	room := max(width-widest-len(" [] ")-max(len(figures), 5), 5)
	var b strings.Builder
	fmt.Fprintf(&b, "%-*s [", widest, name)
	drawn, sum := 0, int64(0)
	draw := func(amount int64, letter byte, style ansi.Style) {
		sum += amount
		to := room
		if total > 0 {
			to = int(min((sum*int64(room)+total/2)/total, int64(room)))
		}
		if to > drawn && total > 0 {
			b.WriteString(style.Styled(strings.Repeat(string(letter), to-drawn)))
			drawn = to
		}
	}
	for _, k := range kinds {
		var amount int64
		for _, c := range k.classes {
			amount += parts[c]
		}
		draw(amount, k.letter, classes[k.classes[0]])
	}
	draw(max(used-sum, 0), '|', faint)
	b.WriteString(strings.Repeat(".", room-drawn))
	fmt.Fprintf(&b, "] %s", figures)
	return b.String()
}

// drawCells draws one character for each CPU. If there are too many CPUs, one
// character represents several neighbours, and shows the busiest of them.
func (m model) drawCells() []string {
	const mostLines = 4
	busy := m.status.Node.Busy
	row := max((m.width-len("cpu1023 "))/10*10, 10)
	group := (len(busy) + row*mostLines - 1) / (row * mostLines)
	var lines []string
	for at := 0; at < len(busy); at += row * group {
		var b strings.Builder
		fmt.Fprintf(&b, "cpu%-4d ", busy[at].ID)
		for i := at; i < min(at+row*group, len(busy)); i += group {
			most := unit.MilliCPU(0)
			for _, c := range busy[i:min(i+group, len(busy))] {
				most = max(most, c.Busy)
			}
			b.WriteByte(cell(most))
		}
		lines = append(lines, b.String())
	}
	return lines
}

// cell returns the usage of a CPU as one character: a digit (tenths), or "." if idle.
func cell(busy unit.MilliCPU) byte {
	if busy < 10 {
		return '.'
	}
	return '0' + byte(min(busy/100, 9))
}
