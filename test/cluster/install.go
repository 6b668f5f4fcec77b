package cluster

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// A Release is a built version of Tenon to install in a cluster.
type Release struct {
	Version   string // the tag of the images
	Scheduler bool   // install tenon-scheduler, too
	Images    string // the folder of tenond.tar, tenon-manager.tar and tenon-scheduler.tar, OCI archives
	Helm      string // the program
	Chart     string // the folder of the Helm chart
}

// The namespace of Tenon, the name of its Helm release, and what stands before the
// names of its images.
const (
	tenonNamespace = "tenon-system"
	tenonRelease   = "tenon"
	imageRegistry  = "registry.example/tenon"
)

// quickValues make the first batch resources appear within seconds instead of
// minutes.
const quickValues = `strategies.colocation-config={"enable": true, "metricReportIntervalSeconds": 5, "metricAggregateDurationSeconds": 10}`

// Install adds the images to the cluster's registry, and installs or upgrades the
// chart. It returns when all parts of Tenon are ready and each node has batch
// resources. It passes messages about the durations to say.
func (c *Cluster) Install(ctx context.Context, r Release, say func(format string, args ...any)) error {
	begun := time.Now()
	if err := c.addRelease(r); err != nil {
		return err
	}
	args := append([]string{
		"upgrade", "--install", tenonRelease, r.Chart, "--namespace", tenonNamespace, "--create-namespace",
		"--set", "image.registry=" + imageRegistry, "--set", "image.tag=" + r.Version, "--set-json", quickValues, "--wait", "--timeout", "3m",
	}, lackedValues()...)
	if r.Scheduler {
		args = append(args, "--set", "scheduler.enabled=true")
	}
	if out, err := c.Command(ctx, r.Helm, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("helm upgrade --install: %w\n%s", err, out)
	}
	say("Tenon is ready, %.1f s after the start of its installation", time.Since(begun).Seconds())
	err := retry(ctx, 3*time.Minute, func() error {
		const amount = `jsonpath={range .items[*]}{.metadata.name}={.status.allocatable.kubernetes\.io/batch-memory}{"\n"}{end}`
		text, err := c.Kubectl(ctx, "get", "nodes", "-o", amount)
		if err != nil {
			return err
		}
		for line := range strings.FieldsSeq(text) {
			if name, found, _ := strings.Cut(line, "="); found == "" || found == "0" {
				return fmt.Errorf("%s has no batch resources", name)
			}
		}
		return nil
	})
	if err == nil {
		say("every node has batch resources, %.1f s after it", time.Since(begun).Seconds())
	}
	return err
}

// addRelease adds the images of a version of Tenon to the registry.
func (c *Cluster) addRelease(r Release) error {
	names := []string{"tenond", "tenon-manager"}
	if r.Scheduler {
		names = append(names, "tenon-scheduler")
	}
	for _, name := range names {
		if err := c.AddImage(filepath.Join(r.Images, name+".tar"), imageRegistry+"/"+name+":"+r.Version); err != nil {
			return err
		}
	}
	return nil
}

// lackedValues returns values of the chart for a machine whose root lacks
// CAP_SYS_RESOURCE, as in some virtual machines. There, containers cannot have
// this capability either.
func lackedValues() []string {
	if has, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, unix.CAP_SYS_RESOURCE, 0, 0, 0); err == nil && has == 1 {
		return nil
	}
	return []string{
		"--set-json", `agent.capabilities=["BPF","PERFMON","SYS_NICE","SYS_PTRACE","KILL","DAC_OVERRIDE"]`,
		"--set-json", `watchdog.capabilities=["SYS_NICE","IPC_LOCK","DAC_OVERRIDE"]`,
	}
}
