package cmdline

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// TestYAMLHasTheKeysOfJSON checks that strings stay strings, and that no
// character of a name reaches the terminal as a control character.
func TestYAMLHasTheKeysOfJSON(t *testing.T) {
	v := struct {
		Name string   `json:"name"`
		N    int      `json:"n"`
		Of   []string `json:"of"`
	}{"no", 3, []string{"a: b", "x\x1b[2J", "<&>"}}
	for format, want := range map[Output]string{
		Text: "words",
		JSON: "{\n  \"name\": \"no\",\n  \"n\": 3,\n  \"of\": [\n    \"a: b\",\n    \"x\\u001b[2J\",\n    \"<&>\"\n  ]\n}\n",
		YAML: "name: \"no\"\nn: 3\nof:\n    - \"a: b\"\n    - \"x\\e[2J\"\n    - \"<&>\"\n",
	} {
		var b strings.Builder
		if err := format.Print(&b, v, "words"); err != nil || b.String() != want {
			t.Errorf("%s: %q, %v, want %q", format, b.String(), err, want)
		}
	}
}

// TestFlagsNameWhatTheyAccept checks the flags that all programs share.
func TestFlagsNameWhatTheyAccept(t *testing.T) {
	var log Log
	var name ObjectName
	root := &cobra.Command{Use: "program", RunE: func(*cobra.Command, []string) error { return nil }, SilenceUsage: true, SilenceErrors: true}
	log.Add(root, root.Flags())
	name.AddConfigMap(root, root.Flags())
	AddVersion(root, Version("v1"), cobra.NoArgs)
	if name.String() != DefaultConfigMap || log.Level.String() != "info" || log.Format != "text" {
		t.Errorf("the defaults are %v, %v, %v", &name, &log.Level, log.Format)
	}
	for line, want := range map[string]string{
		"--log-level loud":   "want debug, info, warn or error",
		"--log-level INFO":   "want debug, info, warn or error",
		"--log-format xml":   "want text or json",
		"--config-map x":     "want NAMESPACE/NAME",
		"--config-map x/y/z": "want NAMESPACE/NAME",
		"--config-map /y":    "want NAMESPACE/NAME",
		"version -o xml":     "want text, json or yaml",
		"version x":          "unknown command",
	} {
		root.SetArgs(strings.Fields(line))
		if err := root.Execute(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", line, err, want)
		}
	}
	said := map[string]string{}
	for _, line := range []string{"--version", "version"} {
		var b strings.Builder
		root.SetOut(&b)
		root.SetArgs([]string{line})
		if err := root.Execute(); err != nil {
			t.Error(err)
		}
		said[line] = b.String()
	}
	if said["version"] != said["--version"] || !strings.HasPrefix(said["version"], "program v1 go1.") {
		t.Errorf("the version is %q", said)
	}
}
