package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"time"

	"github.com/spf13/cobra"

	"tenon.sh/tenon/internal/agent/printable"
	"tenon.sh/tenon/internal/cmdline"
	"tenon.sh/tenon/internal/machine/host"
	"tenon.sh/tenon/internal/machine/journal"
	"tenon.sh/tenon/internal/machine/lease"
	"tenon.sh/tenon/internal/machine/restore"
)

func newRestoreCommand(g *global) *cobra.Command {
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "restore",
		Short: "Put every kernel knob back",
		Long: `Put every kernel knob that Tenon wrote back to its value from before, from the
journal. Works after kill -9 and without any daemon; a tenond that runs must be
stopped first, and an experiment of tenon lab that runs must have ended.

A knob that another program has changed since is left alone. Groups that Tenon
made are removed when they are empty, and controllers of cgroup v2 that only
these groups needed are disabled. A command started by tenon run is never ended:
the group that it is in stays and is reported, and the command fails. Processes
that a lab started, and that outlived it, are ended.

The command looks for changes in the journal of the state directory, and in the
notes at the cgroups. A Tenon with another state directory has another journal:
what it left is counted, the command fails, and the error names that directory.
The changes of a process that runs and is not in the journal, such as a tenond
in a container, are left alone and counted too: stop that process first.

If another program has damaged or removed the journal, what is left of it and
what the notes at the cgroups say is restored. With a damaged journal the
command fails: what it does not know any more and what is not at a cgroup, such
as groups of resctrl, may still be there. A restart of the machine clears that.`,
		Example: `  sudo tenon restore
  sudo tenon restore --dry-run -o json`,
		Args: cmdline.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			report, refused, err := restoreFrom(cmd.Context(), g.stateDir, dryRun)
			if err != nil && report.Empty() && !report.OnlyOthers() {
				return needRoot("restore", err)
			}
			if printed := g.output.Print(cmd.OutOrStdout(), report, printReport(printable.Value(report), g.stateDir, dryRun, refused)); printed != nil {
				return printed
			}
			if !dryRun {
				err = errors.Join(err, report.Incomplete())
			}
			if err == nil && report.Damage != "" {
				return fmt.Errorf("the journal in %s was damaged (%s): knobs that Tenon changed may still have its values", g.stateDir, report.Damage)
			}
			if err == nil && os.Geteuid() != 0 && !cmd.Flags().Changed("state-dir") {
				// This report covers the journal of this user. Root may have another
				// journal.
				var roots restore.Report
				roots, _, err = restoreFrom(cmd.Context(), journal.DefaultDir, true) //nolint:errcheck // a dry run is not refused
				if err == nil && !roots.Empty() {
					err = fmt.Errorf("the commands of root are not restored: %w", os.ErrPermission)
				}
			}
			return needRoot("restore", err)
		},
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "say what would be done and do nothing")
	return cmd
}

// restoreFrom restores the knobs in one journal. With dryRun, it only reports
// the changes, and refused is the reason why a restore would change nothing now.
func restoreFrom(ctx context.Context, stateDir string, dryRun bool) (report restore.Report, refused, err error) {
	// A garbage collection waits for each thread, and writing a cpuset may take a
	// millisecond. This process soon ends, so let it collect less.
	debug.SetGCPercent(400)
	h, err := host.Open(host.Options{JournalDir: stateDir})
	if err != nil {
		return restore.Report{}, nil, err
	}
	defer h.Close()
	refused = refusal(stateDir, h)
	switch {
	case dryRun:
		report, err = h.RestorePlan(ctx)
		return report, refused, err
	case refused != nil:
		return restore.Report{}, refused, refused
	}
	if err := disarm(ctx, stateDir); err != nil {
		return restore.Report{}, nil, err
	}
	report, err = h.Restore(ctx)
	return report, nil, err
}

// disarmPatience is the time that disarm waits for a watchdog to end.
const disarmPatience = 5 * time.Second

// disarm ends the watchdog of a tenond that is dead. It would overwrite the restored
// values.
func disarm(ctx context.Context, stateDir string) error {
	ctx, cancel := context.WithTimeout(ctx, disarmPatience)
	defer cancel()
	return lease.Disarm(ctx, stateDir)
}

// refusal returns the reason why a restore would harm what runs: a tenond would write
// its values again, and a lab would lose the processes that it measures. It returns nil
// if nothing runs.
func refusal(stateDir string, h *host.Host) error {
	if pid, held := lease.IsHeld(stateDir); held {
		return fmt.Errorf("tenond (process %d) manages this node and would write its values again: stop it first (systemctl stop tenond), or run tenond uninstall", pid)
	}
	return h.CheckLabs()
}

// printReport prints the report of a restore from one state directory. With dryRun,
// refused is the reason why the restore would change nothing now.
func printReport(r restore.Report, stateDir string, dryRun bool, refused error) string {
	looked := "the journal in " + stateDir + " has no change"
	switch {
	case !r.Empty() && dryRun && refused != nil:
		return "Dry run, nothing is written. Now, tenon restore would refuse: " + refused.Error() + "\nWithout that:\n" + r.Planned()
	case !r.Empty() && dryRun:
		return "Dry run, nothing is written:\n" + r.Planned()
	case !r.Empty() || r.OnlyOthers():
		return r.String()
	case r.Unseen:
		return "Nothing to restore here: " + looked + ". Only root sees whether a Tenon with another state directory has changed something.\n"
	}
	return "Nothing to restore: " + looked + ", and no cgroup has a note of Tenon.\n"
}

// needRoot adds the advice to use sudo to an error about permissions.
func needRoot(command string, err error) error {
	if errors.Is(err, os.ErrPermission) && os.Geteuid() != 0 {
		return fmt.Errorf("%s needs root: run sudo tenon %s (%w)", command, command, err)
	}
	return err
}
