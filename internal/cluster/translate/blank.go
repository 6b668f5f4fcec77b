package translate

import "bytes"

// maxCompared is the largest product of two numbers of lines that withBlanks
// compares: some thousand lines each.
const maxCompared = 16 << 20

// linesOf returns the lines of a text, each with its end.
func linesOf(text []byte) [][]byte {
	lines := bytes.SplitAfter(text, []byte("\n"))
	if last := len(lines) - 1; len(lines[last]) == 0 {
		lines = lines[:last]
	}
	return lines
}

// withBlanks returns a printed document with the blank lines of the text that it
// was made of, which a printer of YAML drops. It aligns the lines of both by their
// longest common subsequence. A very long document comes back as it is.
func withBlanks(before, after []byte) []byte {
	a, b := linesOf(before), linesOf(after)
	if len(a)*len(b) > maxCompared {
		return after
	}
	same := func(i, j int) bool { return bytes.Equal(bytes.TrimSpace(a[i]), bytes.TrimSpace(b[j])) }
	common := make([][]int32, len(a)+1) // the length of that of a[i:] and b[j:]
	for i := range common {
		common[i] = make([]int32, len(b)+1)
	}
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			if same(i, j) {
				common[i][j] = common[i+1][j+1] + 1
			} else {
				common[i][j] = max(common[i+1][j], common[i][j+1])
			}
		}
	}
	out := make([]byte, 0, len(after))
	for i, j := 0, 0; i < len(a) || j < len(b); {
		switch {
		case i < len(a) && j < len(b) && same(i, j):
			out = append(out, b[j]...)
			i, j = i+1, j+1
		case j == len(b) || i < len(a) && common[i+1][j] >= common[i][j+1]:
			if len(bytes.TrimSpace(a[i])) == 0 {
				out = append(out, '\n')
			}
			i++
		default:
			out = append(out, b[j]...)
			j++
		}
	}
	return out
}
