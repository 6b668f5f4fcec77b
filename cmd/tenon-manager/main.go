// Command tenon-manager publishes the batch resources that the agents report,
// and answers the webhooks of the API server. A cluster has one manager,
// usually with two replicas.
package main

import (
	"os"

	"tenon.sh/tenon/internal/cmdline"
)

func main() { os.Exit(cmdline.End("tenon-manager", newRootCommand().Execute())) }
