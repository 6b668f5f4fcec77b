// Package install makes tenond a systemd service, and removes it again.
package install

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

	"tenon.sh/tenon/internal/config"
	"tenon.sh/tenon/internal/machine/host"
	"tenon.sh/tenon/internal/machine/lease"
)

//go:embed systemd/*.service
var unitFiles embed.FS

// units are the systemd units, in the order of their start.
var units = []string{"tenond-watchdog.service", "tenond.service"}

const unitDir = "/etc/systemd/system"

// A Service is tenond as a systemd service.
type Service struct {
	Root   string // prefix of every path, to prepare a tree other than the running system; empty: none
	Config string // the configuration file
	Out    io.Writer
}

// A ConfigError says that the existing configuration file has faults or cannot
// be read.
type ConfigError struct{ error }

func (e ConfigError) Unwrap() error { return e.error }

// Install writes the configuration, if there is none, and the units. If Root is
// "", it also starts the service. If the configuration file exists and is not
// valid, Install returns a ConfigError.
func (s Service) Install(ctx context.Context) error {
	if err := s.check("install"); err != nil {
		return err
	}
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	if err := s.writeConfig(); err != nil {
		return err
	}
	for _, u := range units {
		t, err := template.ParseFS(unitFiles, "systemd/"+u)
		if err != nil {
			return fmt.Errorf("unit %s: %w", u, err)
		}
		var text strings.Builder
		if err := t.Execute(&text, struct{ Program, Config string }{program, s.Config}); err != nil {
			return fmt.Errorf("unit %s: %w", u, err)
		}
		if err := s.write(filepath.Join(unitDir, u), []byte(text.String())); err != nil {
			return err
		}
	}
	if s.Root != "" {
		return nil
	}
	return s.systemctl(ctx, [][]string{{"daemon-reload"}, append([]string{"enable", "--now"}, units...)})
}

// writeConfig writes the default configuration. It keeps an existing file, but
// returns an error if the file has faults.
func (s Service) writeConfig() error {
	path := filepath.Join(s.Root, s.Config)
	_, err := config.Load(path)
	switch {
	case err == nil:
		fmt.Fprintf(s.Out, "kept    %s\n", path)
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return s.write(s.Config, config.Default())
	}
	return ConfigError{err}
}

func (s Service) write(path string, data []byte) error {
	path = filepath.Join(s.Root, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(path, data, 0o644); err != nil {
		return err
	}
	fmt.Fprintf(s.Out, "wrote   %s\n", path)
	return nil
}

// Uninstall stops the service, restores all knobs by the journal in stateDir, and
// removes the units. If Root is not "", it only removes the units below Root.
func (s Service) Uninstall(ctx context.Context, stateDir string) error {
	if err := s.check("uninstall"); err != nil {
		return err
	}
	if s.Root != "" {
		return s.removeUnits()
	}
	if err := s.systemctl(ctx, [][]string{append([]string{"disable", "--now"}, units...)}); err != nil {
		return err
	}
	// Remove the units even if a knob cannot be restored. tenon restore can try
	// again without them.
	err := errors.Join(PutBack(ctx, s.Out, stateDir), s.removeUnits())
	return errors.Join(err, s.systemctl(ctx, [][]string{{"daemon-reload"}}))
}

// removeUnits removes the unit files. After an error, it continues with the next file.
func (s Service) removeUnits() error {
	var errs []error
	for _, u := range units {
		path := filepath.Join(s.Root, unitDir, u)
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
			continue
		}
		fmt.Fprintf(s.Out, "removed %s\n", path)
	}
	return errors.Join(errs...)
}

// PutBack removes the lease, so that the watchdog stops writing, and then
// restores all knobs.
func PutBack(ctx context.Context, out io.Writer, stateDir string) error {
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
func (s Service) check(what string) error {
	switch {
	case s.Root != "":
		return nil
	case os.Geteuid() != 0:
		return fmt.Errorf("tenond %s changes the system's services and needs root: use sudo", what)
	}
	if _, err := os.Stat("/run/systemd/system"); err != nil {
		return fmt.Errorf("tenond %s: this system is not run by systemd: start tenond under your own supervisor, or use --root to prepare an image", what)
	}
	return nil
}

func (s Service) systemctl(ctx context.Context, calls [][]string) error {
	for _, args := range calls {
		cmd := exec.CommandContext(ctx, "systemctl", args...)
		cmd.Stdout, cmd.Stderr = s.Out, s.Out
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("systemctl %s: %w", strings.Join(args, " "), err)
		}
	}
	return nil
}
