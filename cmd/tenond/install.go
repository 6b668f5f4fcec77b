package main

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"text/template"

	"github.com/spf13/cobra"

	"tenon.sh/tenon/internal/config"
	"tenon.sh/tenon/internal/machine/host"
	"tenon.sh/tenon/internal/machine/lease"
)

//go:embed systemd/*.service
var unitFiles embed.FS

// units are the systemd units, in the order of their start.
var units = []string{"tenond-watchdog.service", "tenond.service"}

const unitDir = "/etc/systemd/system"

// An installation contains the paths of tenond's files.
type installation struct {
	root   string // prefix of every path, to prepare a tree other than the running system; empty: none
	config string
	out    io.Writer
}

func newInstallCommand() *cobra.Command {
	var i installation
	cmd := &cobra.Command{
		Use:   "install",
		Short: "Install tenond as a systemd service and start it",
		Long: `Write the units tenond.service and tenond-watchdog.service, and the default
configuration where there is none; then enable and start them. The units run the
program that this command was started from: put it where it is to stay first.`,
		Example: `  sudo tenond install
  sudo tenond install --root /mnt/image            # prepare an image, start nothing`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			i.out = cmd.OutOrStdout()
			return i.install(cmd.Context())
		},
	}
	cmd.Flags().StringVar(&i.config, "config", defaultConfig, "the configuration file")
	cmd.Flags().StringVar(&i.root, "root", "", "prepare the tree below this directory instead of the running system")
	return cmd
}

func (i installation) install(ctx context.Context) error {
	if err := i.check("install"); err != nil {
		return err
	}
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	if err := i.writeConfig(); err != nil {
		return err
	}
	for _, u := range units {
		t, err := template.ParseFS(unitFiles, "systemd/"+u)
		if err != nil {
			return fmt.Errorf("unit %s: %w", u, err)
		}
		var text strings.Builder
		if err := t.Execute(&text, struct{ Program, Config string }{program, i.config}); err != nil {
			return fmt.Errorf("unit %s: %w", u, err)
		}
		if err := i.write(filepath.Join(unitDir, u), []byte(text.String())); err != nil {
			return err
		}
	}
	if i.root != "" {
		return nil
	}
	return i.systemctl(ctx, [][]string{{"daemon-reload"}, append([]string{"enable", "--now"}, units...)})
}

// writeConfig writes the default configuration. It keeps an existing file, but
// returns an error if the file has faults.
func (i installation) writeConfig() error {
	path := filepath.Join(i.root, i.config)
	_, err := config.Load(path)
	switch {
	case err == nil:
		fmt.Fprintf(i.out, "kept    %s\n", path)
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return i.write(i.config, config.Default())
	}
	return faultsError{err}
}

func (i installation) write(path string, data []byte) error {
	path = filepath.Join(i.root, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(path, data, 0o644); err != nil {
		return err
	}
	fmt.Fprintf(i.out, "wrote   %s\n", path)
	return nil
}

func newUninstallCommand(g *global) *cobra.Command {
	var i installation
	cmd := &cobra.Command{
		Use:   "uninstall",
		Short: "Stop and remove the systemd service, and put every knob back",
		Long: `Stop and remove the systemd service, and put every knob back that Tenon has
changed. The configuration file stays.`,
		Example: "  sudo tenond uninstall",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			i.out = cmd.OutOrStdout()
			return i.uninstall(cmd.Context(), g.stateDir)
		},
	}
	cmd.Flags().StringVar(&i.root, "root", "", "clear the tree below this directory instead of the running system")
	return cmd
}

func (i installation) uninstall(ctx context.Context, stateDir string) error {
	if err := i.check("uninstall"); err != nil {
		return err
	}
	if i.root != "" {
		return i.removeUnits()
	}
	if err := i.systemctl(ctx, [][]string{append([]string{"disable", "--now"}, units...)}); err != nil {
		return err
	}
	// Remove the units even if a knob cannot be restored. tenon restore can try
	// again without them.
	err := errors.Join(putBack(ctx, i.out, stateDir), i.removeUnits())
	return errors.Join(err, i.systemctl(ctx, [][]string{{"daemon-reload"}}))
}

// removeUnits removes the unit files. After an error, it continues with the next file.
func (i installation) removeUnits() error {
	var errs []error
	for _, u := range units {
		path := filepath.Join(i.root, unitDir, u)
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
			continue
		}
		fmt.Fprintf(i.out, "removed %s\n", path)
	}
	return errors.Join(errs...)
}

// putBack removes the lease, so that the watchdog stops writing, and then
// restores all knobs.
func putBack(ctx context.Context, out io.Writer, stateDir string) error {
	if err := lease.Disarm(ctx, stateDir); err != nil {
		return err
	}
	h, err := host.Open(host.Options{JournalDir: stateDir})
	if err != nil {
		return err
	}
	defer h.Close()
	report, err := h.Restore(ctx)
	fmt.Fprint(out, report)
	return err
}

// check returns an error if a later step of the installation would fail.
func (i installation) check(what string) error {
	switch {
	case i.root != "":
		return nil
	case os.Geteuid() != 0:
		return fmt.Errorf("tenond %s changes the system's services and needs root: use sudo", what)
	}
	if _, err := os.Stat("/run/systemd/system"); err != nil {
		return fmt.Errorf("tenond %s: this system is not run by systemd: start tenond under your own supervisor, or use --root to prepare an image", what)
	}
	return nil
}

func (i installation) systemctl(ctx context.Context, calls [][]string) error {
	for _, args := range calls {
		cmd := exec.CommandContext(ctx, "systemctl", args...)
		cmd.Stdout, cmd.Stderr = i.out, i.out
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("systemctl %s: %w", strings.Join(args, " "), err)
		}
	}
	return nil
}
