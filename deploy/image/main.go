// Command image builds Tenon's container images as OCI archives, without a
// daemon and without a base image: an image contains only static programs. The
// same sources give the same digests.
//
// To load an image, use `ctr -n k8s.io images import bin/images/tenond.tar`,
// `docker load`, `podman load` or `skopeo copy oci-archive:…`.
package main

import (
	"context"
	"flag"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"tenon.sh/tenon/deploy/pack"
)

func main() { pack.Main("image", run) }

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("image", flag.ContinueOnError)
	var o pack.Order
	flags.StringVar(&o.Version, "version", "latest", "the version, and tag of the images")
	registry := flags.String("registry", "", "what stands before the names of the images")
	arches := flags.String("arch", "amd64,arm64", "for which machines")
	out := flags.String("out", "bin/images", "where the archives go")
	only := flags.String("only", "", "these images only, separated by commas: tenond, tenon-manager, tenon-scheduler")
	if err := o.Parse(flags, args); err != nil {
		return err
	}
	o.Work = filepath.Join(*out, "programs")
	for _, p := range pack.Images {
		if *only != "" && !slices.Contains(strings.Split(*only, ","), p.Name) {
			continue
		}
		i, err := o.Image(ctx, p, *registry, strings.Split(*arches, ","), *out)
		if err != nil {
			return fmt.Errorf("make %s: %w", p.Name, err)
		}
		for _, b := range i.Builds {
			if err := o.WriteSBOM(b, *out); err != nil {
				return err
			}
		}
		fmt.Printf("%s  %s  %s\n", i.Path, i.Name, i.Digest)
	}
	return nil
}
