package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"tenon.sh/tenon/internal/cmdline"
	"tenon.sh/tenon/internal/config"
	"tenon.sh/tenon/internal/table"
)

// A faultsError lists the faults of a configuration file, one per line.
type faultsError struct{ error }

func (e faultsError) Unwrap() error { return e.error }

func newConfigCommand() *cobra.Command {
	var output cmdline.Output
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Print the default configuration, or check one",
	}
	check := &cobra.Command{
		Use:   "check FILE",
		Short: "List all faults of a configuration file, with line, field and range",
		Long: `List all faults of a configuration file, with line, field and range; - is
standard input. The exit status is 0 if there are none, and 78 if there are. The
faults are on standard error, with -o json or yaml also on standard output.`,
		Example: `  tenond config check /etc/tenon/tenon.yaml
  tenond config check tenon.yaml -o json | jq -r '.faults[].field'`,
		Args: cmdline.OneArg("file"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := checkConfig(cmd.InOrStdin(), args[0])
			if err != nil {
				return err
			}
			if err := output.Print(cmd.OutOrStdout(), c, c.text()); err != nil {
				return err
			}
			if len(c.Faults) > 0 {
				return faultsError{&config.Invalid{Path: c.File, Faults: c.Faults}}
			}
			return nil
		},
	}
	output.Add(check)
	cmd.AddCommand(
		&cobra.Command{
			Use:     "default",
			Short:   "Print the default configuration, with each key explained",
			Example: "  tenond config default > /etc/tenon/tenon.yaml",
			Args:    cmdline.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error {
				_, err := cmd.OutOrStdout().Write(config.Default())
				return err
			},
		},
		check,
	)
	return cmd
}

// checked is the output of tenond config check. Its JSON keys are stable.
type checked struct {
	File    string         `json:"file"`
	Faults  []config.Fault `json:"faults"`
	Notices []string       `json:"notices,omitempty"`
	Rules   int            `json:"rules"`
}

// text returns the lines for a file without faults. Faults are an error, which is
// printed elsewhere.
func (c checked) text() string {
	if len(c.Faults) > 0 {
		return ""
	}
	var b strings.Builder
	for _, n := range c.Notices {
		b.WriteString("note: " + n + "\n")
	}
	fmt.Fprintf(&b, "%s: no faults, %s\n", c.File, table.Count(c.Rules, "rule"))
	return b.String()
}

// checkConfig reads the configuration file at path, or standard input for -.
func checkConfig(in io.Reader, path string) (checked, error) {
	var data []byte
	var err error
	if path == "-" {
		path = "standard input"
		data, err = io.ReadAll(in)
	} else {
		data, err = config.ReadText(path, config.MaxSize+1)
	}
	if err != nil {
		return checked{}, err
	}
	c, faults := config.Parse(data)
	if faults == nil {
		faults = []config.Fault{} // an empty list in JSON
	}
	return checked{path, faults, c.Notices, len(c.Rules)}, nil
}
