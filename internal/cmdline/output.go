package cmdline

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"tenon.sh/tenon/internal/agent/printable"
)

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

// Add adds the flag -o to commands that print an answer.
func (o *Output) Add(cmds ...*cobra.Command) {
	*o = Text
	for _, cmd := range cmds {
		cmd.Flags().VarP(o, "output", "o", "how to print: text, json or yaml")
		Complete(cmd, "output", string(Text), string(JSON), string(YAML))
	}
}

// Print writes v as JSON or YAML if the user wants that, otherwise it writes text.
// The keys of YAML are those of JSON. Whoever makes a pod or a cgroup chooses some of the
// words, so what cannot be printed becomes an escape: it cannot move the cursor of a
// terminal.
func (o Output) Print(w io.Writer, v any, text string) error {
	if o != JSON && o != YAML {
		_, err := io.WriteString(w, printable.Lines(text))
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
			out = []byte(printable.Lines(string(out))) // all texts are in quotes, where these escapes count
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
