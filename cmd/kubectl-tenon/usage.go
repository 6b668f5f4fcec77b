package main

import (
	"errors"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"tenon.sh/tenon/internal/cmdline"
)

// A page is an answer that can be printed as text or as data.
type page interface{ Text() string }

// print prints a page in the format of -o.
func (a *access) print(cmd *cobra.Command, p page) error {
	return a.output.Print(cmd.OutOrStdout(), p, p.Text())
}

// A listing is a page whose data is a list of nodes.
type listing[T any] struct {
	Nodes []T `json:"nodes"`
	// Unattended lists the schedulers that do not handle the pods that wait for them.
	Unattended []string `json:"unattended,omitempty"`

	text string
}

// Text returns the page.
func (l listing[T]) Text() string { return l.text }

// flagError explains an error of a flag. Users of kubectl try -n and -A with all
// commands.
func flagError(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if errors.As(err, &unknown) && cmd.LocalFlags().Lookup("namespace") == nil {
		switch unknown.GetSpecifiedName() {
		case "n", "namespace", "A", "all-namespaces":
			return cmdline.Usagef("unknown flag: %s: %s is about nodes and the pods of all namespaces", cmdline.FlagName(unknown), cmd.CommandPath())
		}
	}
	return cmdline.FlagError(cmd, err)
}

// These are the words before a slash that kubectl accepts as types of objects.
var (
	podWords  = []string{"pod", "pods", "po"}
	nodeWords = []string{"node", "nodes", "no"}
)

// makerWords are the types of objects that make pods, without their API group.
var makerWords = []string{
	"deployment", "deployments", "deploy", "replicaset", "replicasets", "rs", "statefulset", "statefulsets", "sts",
	"daemonset", "daemonsets", "ds", "job", "jobs", "cronjob", "cronjobs", "cj",
}

// refuseMaker returns an error if text names an object that makes pods, such as
// deployment/db. For a namespace with such a name, -n is necessary.
func refuseMaker(cmd *cobra.Command, text, namespace string) error {
	kind, _, both := strings.Cut(text, "/")
	word, _, _ := strings.Cut(kind, ".")
	if !both || namespace == kind || !slices.Contains(makerWords, word) {
		return nil
	}
	return cmdline.Usagef("%s: %s is no pod: want one of its pods, which kubectl get pods lists", cmd.CommandPath(), text)
}

// cutKind returns the name in a text such as node/worker-1. Without a slash, it returns the text.
func cutKind(text string, words []string) string {
	if kind, name, both := strings.Cut(text, "/"); both && slices.Contains(words, kind) {
		return name
	}
	return text
}

// podName reads the name of a pod: db, pod/db, or shop/db for a pod in the
// namespace shop. given is the value of -n. For a namespace with the name pod,
// -n is necessary.
func podName(text, given string) (namespace, name string, err error) {
	name = cutKind(text, podWords)
	if name == text && strings.Contains(text, "/") {
		namespace, name, _ = strings.Cut(text, "/")
		if given != "" && namespace != given {
			return "", "", cmdline.Usagef("%q names namespace %s, and the flag -n names %s", text, namespace, given)
		}
	}
	if name == "" || strings.Contains(name, "/") {
		return "", "", cmdline.Usagef("%q is not the name of a pod: want NAME, pod/NAME or NAMESPACE/NAME", text)
	}
	if namespace == "" {
		namespace = given
	}
	return namespace, name, nil
}
