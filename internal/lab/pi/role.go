package pi

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"

	"tenon.sh/tenon/internal/kernel/proc"
)

// Main computes digits of π in this process and writes the Report to its
// output. args are the numbers of threads, of digits and of rounds.
func Main(args []string, out io.Writer) error {
	var t Task
	for i, to := range []*int{&t.Threads, &t.Digits, &t.Rounds} {
		n, err := strconv.Atoi(args[i])
		if err != nil {
			return fmt.Errorf("compute π: %q: want a whole number", args[i])
		}
		*to = n
	}
	r, err := t.Report(func() (int, error) {
		st, err := proc.Default().PIDStat(os.Getpid())
		return st.NumThreads, err
	})
	if err != nil {
		return fmt.Errorf("compute π: %w", err)
	}
	return json.NewEncoder(out).Encode(r)
}
