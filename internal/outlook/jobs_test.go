package outlook

import (
	"bytes"
	"strings"
	"testing"

	"tenon.sh/tenon/internal/decide/prospect"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// withoutHour makes outlooks of nodes that were not seen at 7:00.
func withoutHour(all []prospect.Outlook) []prospect.Outlook {
	for i := range all {
		all[i].Hours[7].CPU = prospect.Spread[unit.MilliCPU]{}
		all[i].Hours[7].Memory = prospect.Spread[unit.Bytes]{}
	}
	return all
}

func withoutMemory(all []prospect.Outlook) []prospect.Outlook {
	for i := range all {
		all[i].All.Memory = prospect.Spread[unit.Bytes]{}
		for h := range all[i].Hours {
			all[i].Hours[h].Memory = prospect.Spread[unit.Bytes]{}
		}
	}
	return all
}

// TestJobsFitOnlyIfTheyRunEvenly compares what Jobs requested with the room. The room may be
// that of fewer nodes than the Jobs.
func TestJobsFitOnlyIfTheyRunEvenly(t *testing.T) {
	const even, some = "If they ran evenly over the day, ", "The room of CPUs is that of 2 of the 3 nodes, and the Jobs are those of all."
	for name, c := range map[string]struct {
		all  []prospect.Outlook
		want []string
		not  []string
	}{
		"all nodes":        {weekly(3, 14, 0), []string{even + "7.0 CPUs and 64.0 GiB of it would fit into the room of 95% of the time, and 7.0 CPUs and 64.0 GiB into the mean room."}, []string{"of the 3"}},
		"a node in no sum": {append(weekly(2, 14, 0), withoutHour(weekly(1, 14, 0))...), []string{even, some + " The room of memory is that of 2 of the 3."}, nil},
		"no memory":        {withoutMemory(weekly(3, 14, 0)), []string{even + "7.0 CPUs of it would fit into the room of 95% of the time, and 7.0 CPUs into the mean room."}, []string{"of the 3"}},
	} {
		v := View{Of: "The nodes", Fleet: prospect.Sum(c.all), Jobs: node.Some(prospect.Jobs{Pods: 1, CPU: 7000, Memory: 64 << 30})}
		var text bytes.Buffer
		if err := v.Page().WriteText(&text); err != nil {
			t.Fatal(err)
		}
		words := strings.Join(strings.Fields(text.String()), " ")
		for _, want := range c.want {
			if !strings.Contains(words, want) {
				t.Errorf("%s: %q is not in\n%s", name, want, text.String())
			}
		}
		for _, not := range c.not {
			if strings.Contains(words, not) {
				t.Errorf("%s: %q is in\n%s", name, not, text.String())
			}
		}
	}
}
