package cmdline

import (
	"context"
	"errors"
	"fmt"
	"io"
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

// aProgram returns a program with a service that it shows, and batch work that it
// runs.
func aProgram() *cobra.Command {
	var log Log
	var output Output
	var name ObjectName
	do := func(*cobra.Command, []string) error { return nil }
	root := &cobra.Command{Use: "program", RunE: do, Args: NoArgs}
	log.Add(root)
	name.AddConfigMap(root)
	root.Flags().String("state-dir", "", "a directory")
	root.Flags().Int("cpus", 0, "how many CPUs, with a text that is too long for one line of a terminal that has a hundred columns")
	Dirs(root.Flags(), "state-dir")
	GroupFlags(root.Flags(), FlagGroup{Title: "Machine"}, FlagGroup{"Log", []string{"log-level", "log-format"}})
	show := &cobra.Command{Use: "show", Short: "Show the services"}
	services, batch := &cobra.Command{Use: "services", RunE: do, Args: NoArgs}, &cobra.Command{Use: "batch", RunE: do, Args: OneArg("name")}
	output.Add(services, batch)
	batch.Flags().String("node", "", "names of nodes")
	CompleteListFrom(batch, "node", func(context.Context) []string { return []string{"node-1", "node-2"} })
	show.AddCommand(services, batch)
	run := &cobra.Command{Use: "run", Short: "Run batch work", RunE: do, Args: NoArgs}
	AddGroups(root, CommandGroup{"Look", []*cobra.Command{show}}, CommandGroup{"Run", []*cobra.Command{run}})
	Prepare(root, "v1")
	return root
}

// say runs a command line and returns what it prints. The word EMPTY is an empty
// argument.
func say(line string) (string, error) {
	args := strings.Fields(line)
	for i := range args {
		args[i] = strings.ReplaceAll(args[i], "EMPTY", "")
	}
	root := aProgram()
	var b strings.Builder
	root.SetOut(&b)
	root.SetErr(io.Discard)
	root.SetArgs(args)
	err := root.Execute()
	return b.String(), err
}

// TestAWrongCommandLineSaysWhatIsRight checks the errors that all programs have.
func TestAWrongCommandLineSaysWhatIsRight(t *testing.T) {
	for line, want := range map[string]string{
		"--log-level loud":       `invalid argument "loud" for "--log-level" flag: want debug, info, warn or error: see program --help`,
		"--log-level INFO":       `invalid argument "INFO" for "--log-level" flag: want debug, info, warn or error: see program --help`,
		"--log-format xml":       `invalid argument "xml" for "--log-format" flag: want text or json: see program --help`,
		"--config-map x":         `invalid argument "x" for "--config-map" flag: want NAMESPACE/NAME: see program --help`,
		"--config-map x/y/z":     `invalid argument "x/y/z" for "--config-map" flag: want NAMESPACE/NAME: see program --help`,
		"--config-map /y":        `invalid argument "/y" for "--config-map" flag: want NAMESPACE/NAME: see program --help`,
		"--cpus two":             `invalid argument "two" for "--cpus" flag: want a whole number: see program --help`,
		"version -o xml":         `invalid argument "xml" for "-o, --output" flag: want text, json or yaml: see program version --help`,
		"version x":              `program version takes no argument, got "x": see program version --help`,
		"--conf x":               "unknown flag: --conf: did you mean --config-map?",
		"--stat-dir x":           "unknown flag: --stat-dir: did you mean --state-dir?",
		"--cpsu 2":               "unknown flag: --cpsu: did you mean --cpus?",
		"--nothing":              "unknown flag: --nothing: see program --help",
		"run --node x":           "unknown flag: --node: program show batch has it",
		"run -o json":            "unknown flag: -o: program show batch, program show services and program version have it",
		"run -x":                 "unknown flag: -x: see program run --help",
		"rnu":                    `program takes no argument, got "rnu": did you mean run?`,
		"foo":                    `program takes no argument, got "foo": see program --help`,
		"show servics":           `unknown command "servics": did you mean services?`,
		"show everything":        `unknown command "everything": want batch, services`,
		"show help batch":        `unknown command "help": see program help show batch`,
		"show batch":             "program show batch wants one name, got 0: see program show batch --help",
		"show batch a b":         "program show batch wants one name, got 2: see program show batch --help",
		"help show bach":         `unknown command "bach": did you mean batch?`,
		"completion powershel":   `unknown command "powershel": did you mean powershell?`,
		"completion elvish":      `unknown command "elvish": want bash, fish, powershell, zsh`,
		"show services --output": "flag needs an argument: --output: see program show services --help",
	} {
		out, err := say(line)
		if err == nil || err.Error() != want || ExitStatus(err) != ExitUsage || out != "" {
			t.Errorf("%s:\n got %v, status %d, %s\nwant %s", line, err, ExitStatus(err), out, want)
		}
	}
}

// TestAGroupOfCommandsPrintsItsHelp has no command line with an error.
func TestAGroupOfCommandsPrintsItsHelp(t *testing.T) {
	for _, line := range []string{"show", "show --help", "help show"} {
		if out, err := say(line); err != nil || !strings.Contains(out, "\n  services ") {
			t.Errorf("%s: %v\n%s", line, err, out)
		}
	}
}

// TestTheHelpHasGroupsAndFits checks the order of the groups, and the width.
func TestTheHelpHasGroupsAndFits(t *testing.T) {
	out, err := say("--help")
	if err != nil {
		t.Fatal(err)
	}
	at := 0
	for _, part := range []string{"\nLook:\n  show ", "\nRun:\n  run ", "\nMachine:\n", "--config-map", "--cpus", "--state-dir", "\nLog:\n", "--log-format", "--log-level", "\nHelp:\n", "--help", "--version"} {
		i := strings.Index(out[at:], part)
		if i < 0 {
			t.Fatalf("%q is missing, or not in order, in\n%s", part, out)
		}
		at += i
	}
	for line := range strings.SplitSeq(out, "\n") {
		if len(line) > columns {
			t.Errorf("%d columns: %s", len(line), line)
		}
	}
	if out, err := say("show batch --help"); err != nil || !strings.Contains(out, "\nFlags:\n") || strings.Contains(out, "Global") {
		t.Errorf("flags without groups: %v\n%s", err, out)
	}
}

// TestAShellOffersWhatFits asks as a shell does. The last line has the directive:
// 4 is no files, 16 is directories, and 6 is no files and no blank.
func TestAShellOffersWhatFits(t *testing.T) {
	for line, want := range map[string]string{
		"--log-level EMPTY":          "debug\ninfo\nwarn\nerror\n:4\n",
		"--config-map EMPTY":         ":4\n",
		"--cpus EMPTY":               ":4\n",
		"--state-dir EMPTY":          ":16\n",
		"show batch --node EMPTY":    "node-1\nnode-2\n:6\n",
		"show batch --node node-1,n": "node-1,node-2\n:6\n",
		"show services EMPTY":        ":4\n",
		"show batch -o y":            "text\njson\nyaml\n:4\n",
		"show EMPTY":                 "batch\nservices\n:4\n",
		"show batch EMPTY":           ":0\n",
	} {
		out, err := say("__completeNoDesc " + line)
		if err != nil || out != want {
			t.Errorf("%s: %v, %q, want %q", line, err, out, want)
		}
	}
}

// TestBothFormsOfTheVersionAreOneLine checks --version and version.
func TestBothFormsOfTheVersionAreOneLine(t *testing.T) {
	flag, err := say("--version")
	command, err2 := say("version")
	if err != nil || err2 != nil || flag != command || !strings.HasPrefix(flag, "program v1 go1.") || strings.Count(flag, "\n") != 1 {
		t.Errorf("%q and %q, %v, %v", flag, command, err, err2)
	}
	if data, err := say("version -o yaml"); err != nil || !strings.Contains(data, `version: "v1"`) {
		t.Errorf("%q, %v", data, err)
	}
}

// TestAnErrorIsOneLineWithAStatus checks the end of a program.
func TestAnErrorIsOneLineWithAStatus(t *testing.T) {
	failed := errors.New("no room")
	for _, c := range []struct {
		err  error
		want int
		text string
	}{
		{errors.Join(failed, Usage(failed)), ExitUsage, "no room; no room"},
		{fmt.Errorf("place: %w", failed), ExitFailure, "place: no room"},
		{Usagef("place %q: %w", "a\x1b", failed), ExitUsage, `place "a\x1b": no room`},
	} {
		if got := ExitStatus(c.err); got != c.want || OneLine(c.err) != c.text || !errors.Is(c.err, failed) {
			t.Errorf("%v: status %d, want %d, and %q, want %q", c.err, got, c.want, OneLine(c.err), c.text)
		}
	}
	if End("program", nil) != 0 {
		t.Error("a program without an error does not end with 0")
	}
}
