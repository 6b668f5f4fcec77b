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
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A product is one of Tenon's images.
type product struct {
	name     string
	about    string
	programs []string // folders of cmd/; a container runs the first one
	user     string
	module   string // the folder of the module that has cmd/; empty: the root
	bpf      bool   // the programs contain the compiled objects of bpf/
}

var products = []product{
	// tenond runs as root with the capabilities of the manifest, because it
	// writes cgroups.
	{name: "tenond", about: "Tenon's node agent and its watchdog", programs: []string{"tenond", "tenon"}, user: "0:0", bpf: true},
	{name: "tenon-manager", about: "Tenon's controllers and webhooks", programs: []string{"tenon-manager"}, user: "65532:65532"},
	{name: "tenon-scheduler", about: "Kubernetes' scheduler with Tenon's choice of CPUs", programs: []string{"tenon-scheduler"}, user: "65532:65532", module: "scheduler"},
}

const source = "https://tenon.sh/tenon"

// An order tells which images to build, and how.
type order struct {
	version, registry string
	arches            []string
	root, out         string
	created           time.Time
}

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
	var o order
	flags.StringVar(&o.version, "version", "latest", "the version, and tag of the images")
	flags.StringVar(&o.registry, "registry", "ghcr.io/tenon-sh", "what stands before the names of the images")
	arches := flags.String("arch", "amd64,arm64", "for which machines")
	flags.StringVar(&o.root, "root", ".", "where the sources are")
	flags.StringVar(&o.out, "out", "bin/images", "where the archives go")
	only := flags.String("only", "", "these images only, separated by commas: tenond, tenon-manager, tenon-scheduler")
	if err := flags.Parse(args); err != nil {
		return err
	}
	o.arches = strings.Split(*arches, ",")
	var err error
	if o.created, err = sourceDate(); err != nil {
		return err
	}
	for _, p := range products {
		if *only != "" && !slices.Contains(strings.Split(*only, ","), p.name) {
			continue
		}
		digest, path, err := o.make(ctx, p)
		if err != nil {
			return fmt.Errorf("make %s: %w", p.name, err)
		}
		fmt.Printf("%s  %s/%s:%s  %s\n", path, o.registry, p.name, tag(o.version), digest)
	}
	return nil
}

// make builds the programs of an image for each architecture, and packs them.
func (o order) make(ctx context.Context, p product) (digest, path string, err error) {
	var layers []layer
	for _, arch := range o.arches {
		dir := filepath.Join(o.out, "programs", arch)
		if err := o.compile(ctx, dir, arch, p); err != nil {
			return "", "", err
		}
		l := layer{arch: arch}
		for _, name := range p.programs {
			data, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				return "", "", err
			}
			l.files = append(l.files, file{name, data})
		}
		modules, err := o.modulesOf(ctx, dir, p)
		if err != nil {
			return "", "", err
		}
		if l.texts, err = o.licences(ctx, p, modules); err != nil {
			return "", "", err
		}
		if err := o.writeSBOM(p, arch, modules, l.files); err != nil {
			return "", "", err
		}
		layers = append(layers, l)
	}
	return o.pack(p, layers)
}

// pack writes the archive of an image.
func (o order) pack(p product, layers []layer) (digest, path string, err error) {
	a, err := newArchive(o.registry+"/"+p.name+":"+tag(o.version), imageOf(p, o.version, o.created), layers)
	if err != nil {
		return "", "", err
	}
	path = filepath.Join(o.out, p.name+".tar")
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return "", "", err
	}
	f, err := os.Create(path)
	if err != nil {
		return "", "", err
	}
	if err := a.write(f); err != nil {
		_ = f.Close()
		return "", "", err
	}
	return a.digest, path, f.Close()
}

// compile builds static programs.
func (o order) compile(ctx context.Context, dir, arch string, p product) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	stamp := "-s -w -X main.version=" + o.version
	if p.module != "" {
		release, err := kubernetes(filepath.Join(o.root, p.module, "go.mod"))
		if err != nil {
			return err
		}
		stamp += " -X k8s.io/component-base/version.gitVersion=" + release
	}
	args := []string{"build", "-trimpath", "-buildvcs=false", "-ldflags", stamp, "-o", dir + string(filepath.Separator)}
	for _, name := range p.programs {
		args = append(args, "./cmd/"+name)
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = filepath.Join(o.root, p.module)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("go build for %s: %w", arch, err)
	}
	return nil
}

// kubernetes returns the release of Kubernetes that a go.mod requires. A
// program that contains code of Kubernetes prints this release beside its version.
func kubernetes(path string) (string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(text)) {
		if words := strings.Fields(line); len(words) == 2 && words[0] == "k8s.io/kubernetes" {
			return words[1], nil
		}
	}
	return "", fmt.Errorf("%s names no release of k8s.io/kubernetes", path)
}

// tag makes a valid image tag from a version: _ replaces each character that a
// tag must not contain, such as + in a semantic version.
func tag(version string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '-' || r == '_' {
			return r
		}
		return '_'
	}, version)
}

// sourceDate is the creation time of the images: SOURCE_DATE_EPOCH, or 1970 by
// default (reproducible-builds.org).
func sourceDate() (time.Time, error) {
	text := os.Getenv("SOURCE_DATE_EPOCH")
	if text == "" {
		return time.Unix(0, 0).UTC(), nil
	}
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("SOURCE_DATE_EPOCH=%q: want seconds since 1970", text)
	}
	return time.Unix(seconds, 0).UTC(), nil
}
