package cmdline

import (
	"errors"
	"io"
	"log/slog"
	"strings"

	"github.com/spf13/cobra"
)

// Log holds the values of the flags of the log.
type Log struct {
	Format LogFormat
	Level  LogLevel
}

// Add adds the flags --log-format and --log-level to commands. The default of the
// level is the present value of l.Level.
func (l *Log) Add(cmds ...*cobra.Command) {
	l.Format = "text"
	for _, cmd := range cmds {
		cmd.Flags().Var(&l.Format, "log-format", "how to log: text or json")
		cmd.Flags().Var(&l.Level, "log-level", "what to log: debug, info, warn or error")
		Complete(cmd, "log-format", "text", "json")
		Complete(cmd, "log-level", "debug", "info", "warn", "error")
	}
}

// Logger returns a logger that writes to w.
func (l *Log) Logger(w io.Writer) *slog.Logger {
	o := &slog.HandlerOptions{Level: slog.Level(l.Level)}
	if l.Format == "json" {
		return slog.New(slog.NewJSONHandler(w, o))
	}
	return slog.New(slog.NewTextHandler(w, o))
}

// LogFormat is the value of the flag --log-format.
type LogFormat string

// Set implements pflag.Value.
func (f *LogFormat) Set(s string) error {
	if s != "text" && s != "json" {
		return errors.New("want text or json")
	}
	*f = LogFormat(s)
	return nil
}

func (f *LogFormat) String() string { return string(*f) }

// Type implements pflag.Value: it names the value in the help text.
func (f *LogFormat) Type() string { return "FORMAT" }

// LogLevel is the value of the flag --log-level.
type LogLevel slog.Level

// Set implements pflag.Value.
func (l *LogLevel) Set(s string) error {
	switch s {
	case "debug", "info", "warn", "error":
		return (*slog.Level)(l).UnmarshalText([]byte(s))
	}
	return errors.New("want debug, info, warn or error")
}

func (l *LogLevel) String() string { return strings.ToLower(slog.Level(*l).String()) }

// Type implements pflag.Value: it names the value in the help text.
func (l *LogLevel) Type() string { return "LEVEL" }
