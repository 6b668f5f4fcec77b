// Package cmdline has what the command lines of Tenon's programs share: the
// version, the formats of an answer, the flags of the log, and names of objects
// of a cluster.
package cmdline

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"tenon.sh/tenon/internal/agent/printable"
)

// DefaultConfigMap is the ConfigMap with Tenon's settings, if no flag names one.
const DefaultConfigMap = "tenon-system/slo-controller-config"

// Version returns the version of the program: that which the build has set, or
// else that of the main module.
func Version(set string) string {
	if set != "" {
		return set
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}

// AddVersion adds the flag --version and the command version to root. Both print
// one line: the program, its version, that of Go, and the platform.
func AddVersion(root *cobra.Command, version string, noArgs cobra.PositionalArgs) {
	v := struct {
		Program  string `json:"program"`
		Version  string `json:"version"`
		Go       string `json:"go"`
		Platform string `json:"platform"`
	}{root.Name(), version, runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH}
	line := fmt.Sprintf("%s %s %s %s\n", v.Program, v.Version, v.Go, v.Platform)
	root.Version = version
	root.SetVersionTemplate(line)
	o := Text
	cmd := &cobra.Command{
		Use:               "version",
		Short:             "Print the version",
		Example:           "  " + root.DisplayName() + " version -o json",
		Args:              noArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(cmd *cobra.Command, _ []string) error { return o.Print(cmd.OutOrStdout(), v, line) },
	}
	o.Add(cmd, cmd.Flags())
	root.AddCommand(cmd)
}

// Output is the value of the flag -o: the format of an answer.
type Output string

// These are the formats.
const (
	Text Output = "text"
	JSON Output = "json"
	YAML Output = "yaml"
)

// Set implements pflag.Value.
func (o *Output) Set(s string) error {
	switch Output(s) {
	case Text, JSON, YAML:
		*o = Output(s)
		return nil
	}
	return errors.New("want text, json or yaml")
}

func (o *Output) String() string { return string(*o) }

// Type implements pflag.Value: it names the value in the help text.
func (o *Output) Type() string { return "FORMAT" }

// Add adds the flag -o to flags of cmd.
func (o *Output) Add(cmd *cobra.Command, flags *pflag.FlagSet) {
	flags.VarP(o, "output", "o", "how to print: text, json or yaml")
	offer(cmd, "output", string(Text), string(JSON), string(YAML))
}

// Print writes v as JSON or YAML if the user wants that, otherwise it writes text.
// The keys of YAML are those of JSON.
func (o Output) Print(w io.Writer, v any, text string) error {
	if o != JSON && o != YAML {
		_, err := io.WriteString(w, text)
		return err
	}
	var b bytes.Buffer
	e := json.NewEncoder(printable.JSON(&b))
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		return err
	}
	out := b.Bytes()
	if o == YAML {
		var n yaml.Node
		err := yaml.Unmarshal(out, &n) // JSON is YAML
		if err == nil {
			unfold(&n)
			out, err = yaml.Marshal(&n)
		}
		if err != nil {
			return fmt.Errorf("print as YAML: %w", err)
		}
	}
	_, err := w.Write(out)
	return err
}

// unfold makes YAML print n on lines of its own, and not as JSON. Texts stay in
// quotes, because some programs read a plain no as a boolean.
func unfold(n *yaml.Node) {
	n.Style &^= yaml.FlowStyle
	for i, below := range n.Content {
		if unfold(below); n.Kind == yaml.MappingNode && i%2 == 0 {
			below.Style = 0 // a key
		}
	}
}

// Log holds the values of the flags of the log.
type Log struct {
	Format LogFormat
	Level  LogLevel
}

// AddLevel adds the flag --log-level to flags of cmd. Its default is the present
// value of l.Level.
func (l *Log) AddLevel(cmd *cobra.Command, flags *pflag.FlagSet) {
	flags.Var(&l.Level, "log-level", "what to log: debug, info, warn or error")
	offer(cmd, "log-level", "debug", "info", "warn", "error")
}

// Add adds the flags --log-format and --log-level to flags of cmd.
func (l *Log) Add(cmd *cobra.Command, flags *pflag.FlagSet) {
	l.Format = "text"
	flags.Var(&l.Format, "log-format", "how to log: text or json")
	offer(cmd, "log-format", "text", "json")
	l.AddLevel(cmd, flags)
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

// ObjectName is the value of a flag that names an object of a cluster.
type ObjectName struct{ Namespace, Name string }

// Set implements pflag.Value.
func (n *ObjectName) Set(s string) error {
	namespace, name, both := strings.Cut(s, "/")
	if !both || namespace == "" || name == "" || strings.Contains(name, "/") {
		return errors.New("want NAMESPACE/NAME")
	}
	*n = ObjectName{namespace, name}
	return nil
}

func (n *ObjectName) String() string {
	if *n == (ObjectName{}) {
		return ""
	}
	return n.Namespace + "/" + n.Name
}

// Type implements pflag.Value: it names the value in the help text.
func (n *ObjectName) Type() string { return "NAMESPACE/NAME" }

// AddConfigMap adds the flag --config-map to flags of cmd.
func (n *ObjectName) AddConfigMap(cmd *cobra.Command, flags *pflag.FlagSet) {
	_ = n.Set(DefaultConfigMap) // cannot fail: a test sets it
	flags.Var(n, "config-map", "the ConfigMap with the settings; Koordinator's is in koordinator-system, ACK's is kube-system/ack-slo-config")
	offer(cmd, "config-map")
}

// offer sets the values that a shell offers for a flag. The shell offers no files.
func offer(cmd *cobra.Command, flag string, values ...string) {
	// An error means that the flag does not exist.
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}
