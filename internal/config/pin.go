package config

import (
	"fmt"

	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// lendsLSR reports whether BE may use the CPUs of LSR work. The default is
// true, because other agents always allow it.
func (t Threshold) lendsLSR() bool { return !valueOf(t.Enable) || valueOf(t.CPUSuppressLendLSR) }

// ownCPUs returns the number of exclusive CPUs that a rule requests, and the
// field with this number. asked is false if the rule requests none.
func (r rule) ownCPUs() (field string, amount unit.MilliCPU, asked bool) {
	if class := node.Class(valueOf(r.Class)); class != node.LSE && class != node.LSR {
		return "", 0, false
	}
	if amount, asked = r.Requests.CPU.Value(); asked {
		return "requests.cpu", amount, true
	}
	amount, asked = r.Limits.CPU.Value()
	return "limits.cpu", amount, asked
}

// checkOwnCPUs adds a fault if a rule requests a fraction of an exclusive CPU.
func (c *checker) checkOwnCPUs(r rule, path string) {
	field, amount, asked := r.ownCPUs()
	if asked && (amount <= 0 || amount%unit.CPUs(1) != 0) && !c.bad[join(path, field)] {
		c.fault(join(path, field), fmt.Sprintf("%v: want a whole number of CPUs, such as 2: class %s uses them exclusively", amount, valueOf(r.Class)))
	}
}

// noticesOfOwnCPUs returns a notice for each LSE or LSR rule without a CPU request.
func noticesOfOwnCPUs(rules []rule) []string {
	var notices []string
	for i, r := range rules {
		class := node.Class(valueOf(r.Class))
		if _, _, asked := r.ownCPUs(); !asked && (class == node.LSE || class == node.LSR) {
			notices = append(notices, fmt.Sprintf("rules[%d]: class %s without requests.cpu has only the CPUs to which it is bound already; if it is not bound, it is treated as LS", i, class))
		}
	}
	return notices
}
