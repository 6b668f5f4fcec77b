package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"tenon.sh/tenon/internal/agent/record"
	"tenon.sh/tenon/internal/cmdline"
)

func newCaptureCommand(g *global) *cobra.Command {
	return &cobra.Command{
		Use:   "capture [FILE]",
		Short: "Save the last ticks of tenond: all that it saw, wanted and did",
		Long: `Save what the flight recorder of tenond holds: all that it saw, wanted and did in
the last ticks, an hour of them with a hundred workloads and a tick a second. It
works also when tenond has crashed, but not across a reboot. FILE is compressed
JSON lines, for tenon replay and zcat; the default is named after the time, and -
is standard output. It names cgroups and holds no content of any process.`,
		Example: `  sudo tenon capture
  sudo tenon capture - | zcat | tail -1`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return cmdline.Usagef("capture wants one file at most, got %d", len(args))
			}
			path := time.Now().Format("tenon-capture-20060102-150405.jsonl.gz")
			if len(args) == 1 {
				path = args[0]
			}
			ticks, err := capture(cmd.OutOrStdout(), g.agentDir, path)
			if errors.Is(err, record.ErrNone) {
				err = fmt.Errorf("%w: tenond has not run here since the last boot", err)
			}
			if err != nil {
				return needRoot("capture", err)
			}
			if path == "-" {
				return nil
			}
			done := struct {
				File  string `json:"file"`
				Ticks int    `json:"ticks"`
			}{path, ticks}
			return g.output.Print(cmd.OutOrStdout(), done, fmt.Sprintf("%s: %d ticks\n", path, ticks))
		},
	}
}

// capture writes the record to a new file, or to standard output. If it fails,
// it removes the incomplete file.
func capture(stdout io.Writer, stateDir, path string) (ticks int, err error) {
	if path == "-" {
		return record.Capture(stateDir, stdout)
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return 0, fmt.Errorf("capture: %w", err)
	}
	defer func() {
		if err = errors.Join(err, f.Close()); err != nil {
			_ = os.Remove(path)
		}
	}()
	return record.Capture(stateDir, f)
}
