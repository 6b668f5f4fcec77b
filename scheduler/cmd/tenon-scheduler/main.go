// Command tenon-scheduler is the kube-scheduler of Kubernetes with the plugin
// that chooses CPUs over the whole cluster.
package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	"k8s.io/kubernetes/cmd/kube-scheduler/app"

	"tenon.sh/tenon/internal/cmdline"
	"tenon.sh/tenon/scheduler/plugin"
)

// version is set by the build: -ldflags "-X main.version=v1.2.3".
var version string

func main() { os.Exit(cli.Run(newCommand())) }

// newCommand returns the command of kube-scheduler with the plugin. Its --version
// prints a line for Tenon, as that of Tenon's other programs, and then the release
// of Kubernetes, as that of any kube-scheduler.
func newCommand() *cobra.Command {
	command := app.NewSchedulerCommand(app.WithPlugin(plugin.Name, plugin.New))
	schedule := command.RunE
	command.RunE = func(cmd *cobra.Command, args []string) error {
		if cmd.Flag("version").Value.String() == "true" {
			fmt.Fprint(cmd.OutOrStdout(), cmdline.VersionLine("tenon-scheduler", cmdline.Version(version)))
		}
		return schedule(cmd, args)
	}
	return command
}
