package resultcmd

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tenon.sh/tenon/internal/cmdline"
	"tenon.sh/tenon/internal/lab/colocation/run"
	"tenon.sh/tenon/internal/lab/colocation/submission"
)

// NewSubmit returns the command tenon lab submit.
func NewSubmit(f Frame) *cobra.Command {
	var c run.Config
	var from, to string
	var yes bool
	cmd := &cobra.Command{
		Use:   "submit [flags]",
		Short: "Run the fixed protocol for half an hour, and make one file of it to hand in",
		Long: `Run the colocation experiment by a fixed protocol, and make one file of it that
others can put together with theirs (tenon lab meta). What is run, and what is
expected, is written to the directory of the results before the first run:
thirty blocks of six modes, or as many as fit into thirty minutes. It needs what
tenon lab colocation needs.

The file has the raw histograms and counters of all runs, void ones too, facts of
the machine (kernel, CPU, memory, versions), and a hash. It has no names of the
machine or of users, no paths, no addresses, no command line and no names of
other programs. Before the file is written, the command prints all that it would
have, and asks. A submission counts whether its result pleases or not, and so
does one of a machine on which two equal modes differ.`,
		Example: `  sudo tenon lab submit
  tenon lab submit --from tenon-lab-20260102-150405 --yes
  tenon lab meta tenon-submission-*.tar.zst`,
		Args: cmdline.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if from == "" {
				dir, err := runProtocol(cmd, f, c)
				if err != nil {
					return err
				}
				from = dir
			}
			return bundle(cmd, from, to, yes)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&c.Out, "out", "", "directory of the results (default ./tenon-lab-TIME)")
	flags.StringVar(&from, "from", "", "run nothing: take the results of an earlier submit in this directory")
	flags.StringVar(&to, "to", ".", "directory of the file")
	flags.BoolVar(&yes, "yes", false, "write the file without asking")
	cmdline.Dirs(flags, "out", "from", "to")
	return cmd
}

// runProtocol runs the experiment, and returns the directory of its results. It
// writes the protocol when the machine has passed all checks. An experiment
// without a run leaves no files. If an experiment fails later, its runs can
// still be submitted.
func runProtocol(cmd *cobra.Command, f Frame, c run.Config) (string, error) {
	p := submission.Fixed()
	if err := p.Fits(privateWords()); err != nil {
		return "", err
	}
	c.Modes, c.Blocks, c.Duration, c.MaxTime, c.Margin, c.LoadPercent = p.Modes, p.Blocks, p.Duration, p.Most, p.Margin, p.Load
	if err := f.Prepare(&c); err != nil {
		return "", err
	}
	if c.Out == "" {
		c.Out = "tenon-lab-" + time.Now().Format("20060102-150405")
	}
	if _, err := os.Stat(filepath.Join(c.Out, submission.ProtocolFile)); err == nil {
		return "", fmt.Errorf("--out %s: there is a protocol already, choose another directory", c.Out)
	}
	c.Seed = uint64(time.Now().UnixNano()) // so that the order of the modes differs between submissions
	claimed := false
	c.Claimed = func() error {
		claimed = true
		return p.Write(c.Out, time.Now())
	}
	err := f.Experiment(cmd, func(ctx context.Context) error {
		o, err := f.Colocate(ctx, c)
		switch {
		case o.Runs > 0:
			if o.Findings != nil {
				err = errors.Join(err, o.Findings.Page().WriteText(cmd.OutOrStdout()))
			}
			if err != nil {
				fmt.Fprintf(cmd.ErrOrStderr(), "%s has %d runs. To submit them: tenon lab submit --from %[1]s\n", c.Out, o.Runs)
			}
		case claimed:
			submission.Withdraw(c.Out)
		}
		return err
	})
	return c.Out, err
}

// bundle prints the submission for the results in a directory. If the user
// agrees, it writes the submission.
func bundle(cmd *cobra.Command, from, to string, yes bool) error {
	b, err := submission.Make(from, privateWords())
	if err != nil {
		return fmt.Errorf("make a submission of %s: %w", from, err)
	}
	out := cmd.OutOrStdout()
	fmt.Fprintln(out, b.Shown())
	if !yes {
		fmt.Fprintf(out, "Write %s? [y/N] ", filepath.Join(to, b.Name()))
		answer, _ := bufio.NewReader(cmd.InOrStdin()).ReadString('\n') //nolint:errcheck // after an error, the answer is empty and means no
		if a := strings.ToLower(strings.TrimSpace(answer)); a != "y" && a != "yes" {
			fmt.Fprintf(out, "Nothing was written. Later: tenon lab submit --from %s\n", from)
			return nil
		}
	}
	path, err := b.Write(to)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%s\n", path)
	return nil
}

// privateWords returns the names of this machine and of the users who run the
// command.
func privateWords() submission.Private {
	var words []string
	if host, err := os.Hostname(); err == nil {
		short, _, _ := strings.Cut(host, ".")
		words = append(words, host, short)
	}
	for _, name := range []string{"SUDO_USER", "USER", "LOGNAME"} {
		words = append(words, os.Getenv(name))
	}
	if u, err := user.Current(); err == nil {
		words = append(words, u.Username, filepath.Base(u.HomeDir))
	}
	return submission.Private{Words: slices.DeleteFunc(words, func(w string) bool { return slices.Contains(commonNames, strings.ToLower(w)) })}
}

// commonNames are the usual names of machines and users in images of Linux.
// They identify no user, so they stay in a submission. Some of them are also
// names of distributions, which readers of the results need.
var commonNames = []string{
	"root", "admin", "user", "localhost", "vagrant", "ec2-user", "cloud-user", "core", "linux",
	"almalinux", "alpine", "amazon", "arch", "centos", "debian", "fedora", "gentoo", "opensuse", "oracle", "rocky", "suse", "ubuntu",
}
