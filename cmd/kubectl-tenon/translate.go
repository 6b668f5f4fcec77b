package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"tenon.sh/tenon/internal/cluster/admission"
	"tenon.sh/tenon/internal/cluster/translate"
	"tenon.sh/tenon/internal/cmdline"
)

// A translation contains the command line of translate.
type translation struct {
	*access
	files, profiles  []string
	schedulers       map[string]string
	namespace        string
	recursive, local bool
}

func translateCommand(a *access) *cobra.Command {
	q := &translation{access: a}
	cmd := &cobra.Command{
		Use:   "translate [-f FILE]... [FILE]...",
		Short: "Print manifests with their batch work translated as the webhook would do it",
		Long: `Prints the manifests with their pod templates changed as the webhook changes new
pods: profiles act, cpu and memory of batch work become batch resources, and
missing limits and requests are filled in. Then the manifest says what its pods
request, and what reads only the template sees it: Kueue, a review, a diff. The
webhook leaves such pods as they are, but for its list of the profiles and the
gate of batch pods.

A pod that the webhook would refuse is an error, whatever its class. A document
without batch work is printed as it is, to the byte. A translated one keeps its
comments, its blank lines and the order of its fields. FILE is a file of YAML or
JSON, a folder, or - for standard input. It translates Pods, and each field with
the name template, below spec, whose spec has containers. All kinds of Kubernetes
that make pods have this form, and most others, such as JobSet.

The profiles are those of the cluster. With --profile they come from files, which
may also contain the PriorityClasses and Namespaces that profiles name, and with
--local there are none; then the cluster is not asked. It assumes that colocation
is enabled, and that no LimitRange adds amounts.`,
		Example: `  kubectl tenon translate -f job.yaml
  kubectl tenon translate -f jobs/ -R > translated.yaml
  helm template spark ./spark | kubectl tenon translate --profile profiles.yaml -f -
  kubectl tenon translate -f job.yaml | diff job.yaml -`,
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return []string{"yaml", "yml", "json"}, cobra.ShellCompDirectiveFilterFileExt
		},
		RunE: func(cmd *cobra.Command, args []string) error { return q.run(cmd, append(q.files, args...)) },
	}
	flags := cmd.Flags()
	flags.StringArrayVarP(&q.files, "filename", "f", nil, "a file with manifests, a folder, or - for standard input; may be repeated")
	flags.BoolVarP(&q.recursive, "recursive", "R", false, "look for files in folders of the folder, too")
	flags.StringArrayVar(&q.profiles, "profile", nil, "a file with the profiles, in place of those of the cluster; may be repeated")
	flags.BoolVar(&q.local, "local", false, "do not ask the cluster: without --profile there are no profiles")
	flags.StringToStringVar(&q.schedulers, "translate-scheduler", nil, "the flag of tenon-manager: names of schedulers and those that replace them, such as koord-scheduler=default-scheduler")
	cmdline.Files(flags, "filename", "profile")
	a.addNamespace(cmd, &q.namespace, "the namespace of objects that name none")
	return cmd
}

func (q *translation) run(cmd *cobra.Command, names []string) error {
	if len(names) == 0 {
		return cmdline.Usagef("%s wants a manifest, such as -f job.yaml: see %[1]s --help", cmd.CommandPath())
	}
	files, err := filesIn(names, q.recursive)
	if err != nil {
		return err
	}
	t, err := q.translator(cmd.Context(), cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	var out bytes.Buffer
	for _, name := range files {
		text, err := readFile(cmd.InOrStdin(), name)
		if err != nil {
			return err
		}
		changed, notes, err := t.Stream(text)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		for _, n := range notes {
			fmt.Fprintf(cmd.ErrOrStderr(), "warning: %s: %s\n", name, n)
		}
		join(&out, changed)
	}
	_, err = out.WriteTo(cmd.OutOrStdout())
	return err
}

// join adds a stream of documents to others, with a separator if it has none.
func join(out *bytes.Buffer, stream []byte) {
	if out.Len() > 0 {
		if !bytes.HasSuffix(out.Bytes(), []byte("\n")) {
			out.WriteByte('\n')
		}
		if !bytes.HasPrefix(stream, []byte("---")) {
			out.WriteString("---\n")
		}
	}
	out.Write(stream)
}

// translator reads the inputs of the webhook from files or from the cluster.
func (q *translation) translator(ctx context.Context, errOut io.Writer) (translate.Translator, error) {
	namespace, err := q.access.namespace(q.namespace)
	if errors.Is(err, errNoKubeconfig) {
		namespace = corev1.NamespaceDefault
	} else if err != nil {
		return translate.Translator{}, err
	}
	t := translate.Translator{As: admission.Request{PriorityClasses: translate.PriorityClasses(), SchedulerNames: q.schedulers}, Namespace: namespace}
	for _, name := range q.profiles {
		text, err := os.ReadFile(name)
		if err != nil {
			return t, err
		}
		if err := t.Learn(text); err != nil {
			return t, fmt.Errorf("%s: %w", name, err)
		}
	}
	if q.local || len(q.profiles) > 0 {
		return t, nil
	}
	if _, err := q.access.namespace(""); errors.Is(err, errNoKubeconfig) {
		fmt.Fprintln(errOut, "there is no kubeconfig, so no profile acts: --profile names a file with profiles")
		return t, nil
	}
	by := q.webhook(ctx, true)
	if by.Namespaces == nil && len(by.Unread) > 0 { // not even the profiles
		return t, fmt.Errorf("not read: %s: name a file with --profile, or leave profiles out with --local", by.Unread[0])
	}
	for _, text := range by.Unread {
		fmt.Fprintf(errOut, "not looked at: %s\n", text)
	}
	t.As.Profiles, t.Namespaces = by.Profiles, by.Namespaces
	c, err := q.access.client()
	if err != nil {
		return t, err
	}
	t.Home = managerHome(ctx, c)
	if len(by.PriorityClasses) > 0 {
		t.As.PriorityClasses = by.PriorityClasses
	}
	return t, nil
}

// readFile reads a file, or standard input if the name is -.
func readFile(in io.Reader, name string) ([]byte, error) {
	if name == "-" {
		return io.ReadAll(in)
	}
	return os.ReadFile(name)
}

// filesIn returns the files with manifests, as kubectl -f takes them: of a
// folder those that end with .json, .yaml or .yml, in alphabetical order.
func filesIn(names []string, recursive bool) ([]string, error) {
	var all []string
	for _, name := range names {
		info, err := os.Stat(name)
		switch {
		case name == "-":
			all = append(all, name)
			continue
		case err != nil:
			return nil, err
		case !info.IsDir():
			all = append(all, name)
			continue
		}
		before := len(all)
		err = filepath.WalkDir(name, func(path string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case d.IsDir() && path != name && !recursive:
				return fs.SkipDir
			case !d.IsDir() && slices.Contains([]string{".json", ".yaml", ".yml"}, filepath.Ext(path)):
				all = append(all, path)
			}
			return nil
		})
		if err == nil && len(all) == before {
			err = errors.New("no file ends with .json, .yaml or .yml")
		}
		if err != nil {
			return nil, fmt.Errorf("folder %s: %w", name, err)
		}
	}
	return all, nil
}
