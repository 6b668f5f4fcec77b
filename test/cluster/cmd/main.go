// Command cluster runs a real Kubernetes on this machine for manual tests; see
// package test/cluster.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"tenon.sh/tenon/internal/model/unit"
	"tenon.sh/tenon/test/cluster"
	"tenon.sh/tenon/test/cluster/image"
)

const usage = `usage: cluster [-name NAME] COMMAND
  up [-nodes N]         start a cluster, with that many nodes
     [-system-cpus CPUS]  on these CPUs, such as 0 or 0-1; the kubelets of
                        these nodes keep pods off them
     [-kube-proxy]      with kube-proxy on node 0, for the addresses and node
                        ports of services
  node I [LINE...]      start node I, with more lines of its KubeletConfiguration
  run COMMAND...        run a command in the cluster's namespaces, KUBECONFIG set
  on I COMMAND...       the same in the mount namespace of node I too
  kubelet I stop|start  kill or start the kubelet of node I (also: containerd,
                        kube-proxy)
  user NAME [GROUP...]  make credentials, print the path of the kubeconfig
  images                build the images, list their names
  image FILE NAME       take an OCI archive into the cluster's registry
  tenon [-scheduler] VERSION
                        install Tenon, with -scheduler also tenon-scheduler: images
                        from bin/images, the chart from deploy/chart/tenon, helm
                        from the folder of this program
  down                  end it and remove every trace
  sweep                 remove what killed tests have left on this machine
`

func main() {
	cluster.Main()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx, os.Args[1:])
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		os.Exit(max(1, exit.ExitCode()))
	case err != nil:
		fmt.Fprintln(os.Stderr, "cluster:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("cluster", flag.ExitOnError)
	flags.Usage = func() { fmt.Fprint(os.Stderr, usage) }
	name := flags.String("name", "dev", "")
	_ = flags.Parse(args) // exits after an error
	args = flags.Args()
	if len(args) == 0 {
		flags.Usage()
		return errors.New("the command is missing")
	}
	command, args := args[0], args[1:]
	switch command {
	case "up":
		return up(ctx, *name, args)
	case "images":
		images, err := image.Build(ctx, cluster.Cache())
		if err != nil {
			return err
		}
		names, err := images.Names()
		fmt.Println(strings.Join(names, "\n"))
		return err
	}
	if command == "sweep" {
		return cluster.Sweep()
	}
	c, err := cluster.Attach(*name)
	if err != nil {
		return err
	}
	node := func() (*cluster.Node, []string, error) {
		if len(args) == 0 {
			return nil, nil, errors.New("which node? a number is missing")
		}
		i, err := strconv.Atoi(args[0])
		return c.Node(i), args[1:], err
	}
	switch command {
	case "down":
		return c.Down()
	case "run":
		return attached(c, c.Command, ctx, args)
	case "on":
		n, rest, err := node()
		if err != nil {
			return err
		}
		return attached(c, n.Command, ctx, rest)
	case "node":
		n, rest, err := node()
		if err != nil {
			return err
		}
		i, _ := strconv.Atoi(strings.TrimPrefix(n.Name, "node-"))
		_, err = c.AddNode(ctx, i, cluster.NodeOptions{Kubelet: strings.Join(rest, "\n")})
		return err
	case "kubelet", "containerd", "kube-proxy":
		n, rest, err := node()
		if err != nil {
			return err
		}
		return control(ctx, n, command, strings.Join(rest, " "))
	case "user":
		if len(args) == 0 {
			return errors.New("the user's name is missing")
		}
		path, err := c.User(args[0], args[1:]...)
		fmt.Println(path)
		return err
	case "image":
		if len(args) != 2 {
			return errors.New("usage: cluster image FILE NAME")
		}
		return c.AddImage(args[0], args[1])
	case "tenon":
		return install(ctx, c, args)
	}
	flags.Usage()
	return fmt.Errorf("no command %s", command)
}

func control(ctx context.Context, n *cluster.Node, program, what string) error {
	switch program + " " + what {
	case "kubelet stop":
		return n.StopKubelet(ctx)
	case "kubelet start":
		return n.StartKubelet(ctx)
	case "containerd stop":
		return n.StopContainerd(ctx)
	case "containerd start":
		return n.StartContainerd(ctx)
	case "kube-proxy stop":
		return n.StopKubeProxy(ctx)
	case "kube-proxy start":
		return n.StartKubeProxy(ctx)
	}
	return fmt.Errorf("%s %s: want stop or start", program, what)
}

func attached(c *cluster.Cluster, command func(context.Context, string, ...string) *exec.Cmd, ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errors.New("run what?")
	}
	tools, err := folder()
	if err != nil {
		return err
	}
	cmd := command(ctx, args[0], args[1:]...)
	cmd.Env = append(cmd.Env, "PATH="+tools+":"+c.Bin+":"+os.Getenv("PATH"))
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	return cmd.Run()
}

// folder returns the folder of this program. It also has helm and
// kubectl-tenon, from make cluster.
func folder() (string, error) {
	program, err := os.Executable()
	return filepath.Dir(program), err
}

// install installs Tenon from the folder of the sources.
func install(ctx context.Context, c *cluster.Cluster, args []string) error {
	flags := flag.NewFlagSet("tenon", flag.ExitOnError)
	scheduler := flags.Bool("scheduler", false, "")
	_ = flags.Parse(args) // exits after an error
	if flags.NArg() != 1 {
		return errors.New("usage: cluster tenon [-scheduler] VERSION")
	}
	tools, err := folder()
	if err != nil {
		return err
	}
	release := cluster.Release{Version: flags.Arg(0), Scheduler: *scheduler, Images: filepath.Join(tools, "images"), Helm: filepath.Join(tools, "helm"), Chart: "deploy/chart/tenon"}
	if err := c.Install(ctx, release, say); err != nil {
		return err
	}
	fmt.Printf(tenonHints, typedCommand(), c.Name)
	return nil
}

func say(format string, args ...any) { fmt.Printf(format+"\n", args...) }

func up(ctx context.Context, name string, args []string) error {
	flags := flag.NewFlagSet("up", flag.ExitOnError)
	nodes := flags.Int("nodes", 1, "")
	var system unit.CPUSet
	flags.TextVar(&system, "system-cpus", system, "")
	kubeProxy := flags.Bool("kube-proxy", false, "")
	_ = flags.Parse(args) // exits after an error
	c, err := cluster.Up(ctx, cluster.Options{Name: name, Keep: true, SystemCPUs: system, Log: say})
	if err != nil {
		return err
	}
	for i := range *nodes {
		if _, err := c.AddNode(ctx, i, cluster.NodeOptions{Kubelet: keepOff(system), KubeProxy: *kubeProxy && i == 0}); err != nil {
			return errors.Join(err, c.Down())
		}
	}
	fmt.Printf(hints, typedCommand(), c.Name)
	return nil
}

// typedCommand returns the command by which a user starts this program, with
// sudo if make used sudo.
func typedCommand() string {
	if os.Getenv("SUDO_USER") != "" {
		return "sudo " + os.Args[0]
	}
	return os.Args[0]
}

// keepOff returns a kubelet configuration that keeps the pods of a node off the
// given CPUs.
func keepOff(cpus unit.CPUSet) string {
	if cpus.Empty() {
		return ""
	}
	return fmt.Sprintf("cpuManagerPolicy: static\ncpuManagerPolicyOptions: {strict-cpu-reservation: \"true\"}\nreservedSystemCPUs: %q", cpus)
}

const hints = `
The cluster is up. What to type:
  %[1]s -name %[2]s run kubectl get nodes
  %[1]s -name %[2]s run kubectl apply -f examples/colocation/two-cpus/ls-nginx.yaml
  %[1]s -name %[2]s run kubectl top node            (from twenty seconds on)
  %[1]s -name %[2]s run wrk -t2 -c16 -d10s --latency http://127.0.0.1:8000/
  %[1]s -name %[2]s run bash                        (a shell in its network, with kubectl tenon and helm)
  %[1]s -name %[2]s on 0 ctr -n k8s.io containers ls
  %[1]s -name %[2]s down
`

const tenonHints = `
Tenon is installed. What to type:
  %[1]s -name %[2]s run kubectl tenon top
  %[1]s -name %[2]s run kubectl tenon explain node node-0
  %[1]s -name %[2]s run kubectl apply -f examples/colocation/two-cpus/besteffort-ffmpeg.yaml
  %[1]s -name %[2]s run helm uninstall tenon -n tenon-system
`
