package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tenon.sh/tenon/internal/cluster/cpumap"
	"tenon.sh/tenon/internal/cluster/manifest"
	"tenon.sh/tenon/internal/cluster/podpages"
	"tenon.sh/tenon/internal/cmdline"
)

// errNoRoom makes fit exit with status 1.
var errNoRoom = errors.New("not all pods would find a place")

func fitCommand(a *access, now func() time.Time) *cobra.Command {
	var files []string
	var namespace string
	cmd := &cobra.Command{
		Use:   "fit [-f FILE]... [FILE | pod/NAME]...",
		Short: "Print where the pods of manifests would go, and which CPUs they would get",
		Long: `Places the pods of manifests one after the other on the cluster as it is now, by
the functions of tenon-scheduler, and prints node and CPUs of each. It reads
pods, and objects that make pods from a template, such as a Deployment. FILE may
be -, for standard input. With pod/NAME it places one more pod like the pod NAME.
Pods that run already keep what they have, also those of the manifests.

It creates nothing. It asks the API server to create one pod of each manifest
without storing it (dry run), so that webhooks, quota and other admission answer.
A pod that the API server refuses has the answer of the API server, and the
others are placed as the API server would create them. Without the right to
create pods it applies the ClusterColocationProfiles that match, and says that
admission was not asked. A pod whose scheduler does not run finds no place. It
places at most 10,000 pods.`,
		Example: `  kubectl tenon fit -f db.yaml
  kubectl tenon fit db.yaml web.yaml -n shop && kubectl apply -n shop -f db.yaml -f web.yaml
  helm template shop ./shop | kubectl tenon fit -f -
  kubectl tenon fit pod/db-0 -n shop      # one more pod like this one
  kubectl get deployment web -o yaml | kubectl tenon fit -f -
  kubectl tenon fit -f db.yaml -o json`,
		RunE: func(cmd *cobra.Command, args []string) error {
			existing, named, err := splitPods(args)
			if err != nil {
				return err
			}
			files := append(files, named...)
			if len(files)+len(existing) == 0 {
				return cmdline.Usagef("%s wants a manifest, such as -f db.yaml: see %[1]s --help", cmd.CommandPath())
			}
			all, err := a.manifests(cmd.InOrStdin(), files, namespace)
			if err != nil {
				return err
			}
			home, err := a.namespace(namespace)
			if err != nil {
				return err
			}
			c, err := a.cluster(cmd.Context(), cmd.ErrOrStderr(), home, "", now())
			if err != nil {
				return err
			}
			if err := a.addPods(cmd.Context(), all, c, existing, home); err != nil {
				return err
			}
			c.FindExisting(all)
			by := a.webhook(cmd.Context(), false)
			schedulers, err := a.admit(cmd.Context(), all, by, now())
			if err != nil {
				return err
			}
			found := c.Fit(all.Wanted, by, schedulers)
			if err := a.print(cmd, found); err != nil {
				return err
			}
			if found.Fits < found.Total {
				return errNoRoom
			}
			return nil
		},
	}
	cmd.Flags().StringArrayVarP(&files, "filename", "f", nil, "a file with manifests, or - for standard input; may be repeated")
	cmdline.Files(cmd.Flags(), "filename")
	a.addNamespace(cmd, &namespace, "the namespace of objects that name none")
	return cmd
}

// splitPods returns the names of pods among the arguments, such as db in pod/db
// or in the two words pod db, and the other arguments, which name files. A file
// of such a name comes first.
func splitPods(args []string) (pods, files []string, err error) {
	for i := 0; i < len(args); i++ {
		arg := args[i]
		_, missing := os.Stat(arg)
		kind, name, typed := strings.Cut(arg, "/")
		if !typed && i+1 < len(args) {
			name = args[i+1]
		}
		isPod, isMaker := slices.Contains(podWords, kind), slices.Contains(makerWords, kind)
		switch {
		case missing == nil || name == "" || !isPod && !isMaker:
			files = append(files, arg)
			continue
		case isMaker:
			of := kind + "/" + name
			return nil, nil, cmdline.Usagef("%s is no file: want a manifest or pod/NAME, such as kubectl get %[1]s -o yaml | kubectl tenon fit -f -", of)
		}
		pods = append(pods, name)
		if !typed {
			i++
		}
	}
	return pods, files, nil
}

// addPods adds pods of the cluster.
func (a *access) addPods(ctx context.Context, all *manifest.Set, c *podpages.Cluster, names []string, namespace string) error {
	for _, name := range names {
		p := c.Pod(namespace, name)
		if p == nil && len(c.NotLookedAt()) > 0 {
			direct, err := a.client()
			if err != nil {
				return err
			}
			if p, err = podOf(ctx, direct, namespace, name); err != nil {
				return err
			}
		}
		if p == nil {
			return fmt.Errorf("there is no pod %q in namespace %s", name, namespace)
		}
		all.AddPod(p)
	}
	return nil
}

// manifests reads the pods of files. given is the value of -n.
func (a *access) manifests(in io.Reader, files []string, given string) (*manifest.Set, error) {
	all := &manifest.Set{}
	for _, name := range files {
		if err := read(all, in, name); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	if len(all.Wanted) == 0 && len(files) > 0 {
		return nil, fmt.Errorf("%s: no object with pods", strings.Join(files, ", "))
	}
	namespace, err := a.namespace(given)
	if err != nil {
		return nil, err
	}
	return all, all.SetNamespace(namespace, given != "")
}

func read(all *manifest.Set, in io.Reader, name string) error {
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		defer f.Close()
		in = f
	}
	return all.Read(in)
}

func mapCommand(a *access, now func() time.Time) *cobra.Command {
	var svg, page string
	cmd := &cobra.Command{
		Use:   "map NODE",
		Short: "Print the sockets, NUMA nodes, L3 caches and cores of a node with the pods that hold them",
		Example: `  kubectl tenon map worker-1
  kubectl tenon map worker-1 --svg worker-1.svg
  kubectl tenon map worker-1 --html worker-1.html
  kubectl tenon map worker-1 -o json`,
		Args:              cmdline.OneArg("node"),
		ValidArgsFunction: a.completeNode,
		RunE: func(cmd *cobra.Command, args []string) error {
			if a.output != cmdline.Text && (svg != "" || page != "") {
				return cmdline.Usagef("want one of -o %s, --svg and --html", a.output)
			}
			if svg != "" && svg == page {
				return cmdline.Usagef("--svg and --html name the same file: want two files")
			}
			c, err := a.cluster(cmd.Context(), cmd.ErrOrStderr(), "", "", now())
			if err != nil {
				return err
			}
			for _, text := range c.NotLookedAt() {
				fmt.Fprintf(cmd.ErrOrStderr(), "not looked at: %s\n", text)
			}
			name := cutKind(args[0], nodeWords)
			m, err := c.Map(name)
			if err != nil {
				return fmt.Errorf("%w (the cluster has %s)", err, listed(c.Names()))
			}
			if svg == "" && page == "" {
				return a.print(cmd, mapped{m.Page(), m})
			}
			if svg != "" {
				if err := write(cmd, svg, m.SVG()); err != nil {
					return err
				}
			}
			if page != "" {
				return write(cmd, page, m.HTML())
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&svg, "svg", "", "write a picture to this file instead, or to standard output (-)")
	cmd.Flags().StringVar(&page, "html", "", "write a page with the picture to this file instead, or to standard output (-)")
	cmdline.Files(cmd.Flags(), "svg", "html")
	return cmd
}

// write writes a text to a file, or to standard output if the name is -.
func write(cmd *cobra.Command, name, text string) error {
	if err := cmdline.WriteFile(cmd, name, []byte(text)); err != nil || name == cmdline.Stdout {
		return err
	}
	_, err := fmt.Fprintf(cmd.ErrOrStderr(), "wrote %s\n", name)
	return err
}

// mapped is the map of a node, both as JSON fields and as text.
type mapped struct {
	cpumap.Page
	drawn interface{ Text() string }
}

// Text draws the map.
func (m mapped) Text() string { return m.drawn.Text() }
