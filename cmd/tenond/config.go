package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"tenon.sh/tenon/internal/config"
)

// A faultsError lists the faults of a configuration file, one per line.
type faultsError struct{ error }

func (e faultsError) Unwrap() error { return e.error }

func newConfigCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Print the default configuration, or check one",
		Args:  noArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(
		&cobra.Command{
			Use:     "default",
			Short:   "Print the default configuration, with each key explained",
			Example: "  tenond config default > /etc/tenon/tenon.yaml",
			Args:    noArgs,
			RunE: func(cmd *cobra.Command, _ []string) error {
				_, err := cmd.OutOrStdout().Write(config.Default())
				return err
			},
		},
		&cobra.Command{
			Use:   "check FILE",
			Short: "List all faults of a configuration file, with line, field and range",
			Long: `List all faults of a configuration file, with line, field and range; - is
standard input. The exit status is 0 if there are none, and 78 if there are.`,
			Example: "  tenond config check /etc/tenon/tenon.yaml",
			Args: func(_ *cobra.Command, args []string) error {
				if len(args) != 1 {
					return usageError{errors.New("tenond config check wants one file, such as " + defaultConfig)}
				}
				return nil
			},
			RunE: func(cmd *cobra.Command, args []string) error {
				return checkConfig(cmd.OutOrStdout(), cmd.InOrStdin(), args[0])
			},
		},
	)
	return cmd
}

func checkConfig(out io.Writer, in io.Reader, path string) error {
	var data []byte
	var err error
	if path == "-" {
		path = "standard input"
		data, err = io.ReadAll(in)
	} else {
		data, err = config.ReadText(path, config.MaxSize+1)
	}
	if err != nil {
		return err
	}
	c, faults := config.Parse(data)
	if len(faults) > 0 {
		return faultsError{&config.Invalid{Path: path, Faults: faults}}
	}
	for _, n := range c.Notices {
		fmt.Fprintln(out, "note: "+n)
	}
	rules := "rules"
	if len(c.Rules) == 1 {
		rules = "rule"
	}
	fmt.Fprintf(out, "%s: no faults, %d %s\n", path, len(c.Rules), rules)
	return nil
}
