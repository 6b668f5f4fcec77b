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
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"

	"tenon.sh/tenon/deploy/pack"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("image", flag.ContinueOnError)
	var o pack.Order
	flags.StringVar(&o.Version, "version", "latest", "the version, and tag of the images")
	registry := flags.String("registry", "", "what stands before the names of the images")
	arches := flags.String("arch", "amd64,arm64", "for which machines")
	flags.StringVar(&o.Root, "root", ".", "where the sources are")
	out := flags.String("out", "bin/images", "where the archives go")
	only := flags.String("only", "", "these images only, separated by commas: tenond, tenon-manager, tenon-scheduler")
	if err := flags.Parse(args); err != nil {
		return err
	}
	o.Work = filepath.Join(*out, "programs")
	var err error
	if o.Created, err = pack.SourceDate(); err != nil {
		return err
	}
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
