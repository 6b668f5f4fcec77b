// Command push copies a release to a registry: each image by the tag of the release,
// with its digest, and the chart as Helm stores charts, for helm install oci://. The
// passwords are those of docker login. A registry on loopback is asked without TLS.
package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	v1 "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2"
	"oras.land/oras-go/v2/content/memory"
	"oras.land/oras-go/v2/content/oci"
	"oras.land/oras-go/v2/registry/remote"
	"oras.land/oras-go/v2/registry/remote/auth"
	"oras.land/oras-go/v2/registry/remote/credentials"
	"oras.land/oras-go/v2/registry/remote/retry"
	"sigs.k8s.io/yaml"

	"tenon.sh/tenon/deploy/pack"
)

// The types of a chart in a registry, https://helm.sh/docs/topics/registries.
const (
	chartConfig  = "application/vnd.cncf.helm.config.v1+json"
	chartContent = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
)

func main() { pack.Main("push", run) }

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("push", flag.ContinueOnError)
	release := flags.String("release", "bin/release", "the folder of the release")
	registry := flags.String("registry", "", "the registry with the path in it, such as registry.example:5000/tenon")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *registry == "" {
		return errors.New("--registry says where the release goes")
	}
	if _, err := os.Stat(filepath.Join(*release, "SHA256SUMS")); err != nil {
		return fmt.Errorf("find a complete release: %w", err)
	}
	images, err := filepath.Glob(filepath.Join(*release, "images", "*.tar"))
	if err != nil {
		return err
	}
	for _, path := range images {
		name := strings.TrimSuffix(filepath.Base(path), ".tar")
		if err := pushImage(ctx, path, *registry+"/"+name); err != nil {
			return fmt.Errorf("push %s: %w", path, err)
		}
	}
	charts, err := filepath.Glob(filepath.Join(*release, "tenon-*.tgz"))
	if err != nil {
		return err
	}
	for _, path := range charts {
		if err := pushChart(ctx, path, *registry+"/charts/tenon"); err != nil {
			return fmt.Errorf("push %s: %w", path, err)
		}
	}
	return nil
}

// pushImage copies an archive to a repository, by the tags that it has.
func pushImage(ctx context.Context, path, name string) error {
	from, err := oci.NewFromTar(ctx, path)
	if err != nil {
		return err
	}
	to, err := repository(name)
	if err != nil {
		return err
	}
	return from.Tags(ctx, "", func(tags []string) error {
		for _, tag := range tags {
			if err := push(ctx, from, to, name, tag); err != nil {
				return err
			}
		}
		return nil
	})
}

// pushChart copies a chart to a repository, by its version.
func pushChart(ctx context.Context, path, name string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	about, version, created, err := metadata(text)
	if err != nil {
		return err
	}
	from := memory.New()
	config, err := oras.PushBytes(ctx, from, chartConfig, about)
	if err != nil {
		return err
	}
	content, err := oras.PushBytes(ctx, from, chartContent, text)
	if err != nil {
		return err
	}
	manifest, err := oras.PackManifest(ctx, from, oras.PackManifestVersion1_0, "", oras.PackManifestOptions{
		ConfigDescriptor: &config, Layers: []v1.Descriptor{content},
		ManifestAnnotations: map[string]string{v1.AnnotationCreated: created.UTC().Format(time.RFC3339), v1.AnnotationTitle: "tenon", v1.AnnotationVersion: version},
	})
	if err != nil {
		return err
	}
	if err := from.Tag(ctx, manifest, version); err != nil {
		return err
	}
	to, err := repository(name)
	if err != nil {
		return err
	}
	return push(ctx, from, to, name, version)
}

func push(ctx context.Context, from oras.ReadOnlyTarget, to oras.Target, name, tag string) error {
	d, err := oras.Copy(ctx, from, tag, to, tag, oras.DefaultCopyOptions)
	if err == nil {
		fmt.Printf("%s:%s@%s\n", name, tag, d.Digest)
	}
	return err
}

// metadata returns Chart.yaml of a packed chart as JSON, the version of the chart, and
// the time of its files.
func metadata(packed []byte) (about []byte, version string, created time.Time, err error) {
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, "", created, err
	}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if err != nil {
			return nil, "", created, fmt.Errorf("find Chart.yaml: %w", err)
		}
		if h.Name != "tenon/Chart.yaml" {
			continue
		}
		text, err := io.ReadAll(r)
		if err != nil {
			return nil, "", created, err
		}
		var chart struct{ Version string }
		if err := yaml.Unmarshal(text, &chart); err != nil {
			return nil, "", created, err
		}
		about, err = yaml.YAMLToJSON(text)
		return about, chart.Version, h.ModTime, err
	}
}

// repository returns a repository of a registry, with the user's passwords.
func repository(name string) (*remote.Repository, error) {
	r, err := remote.NewRepository(name)
	if err != nil {
		return nil, err
	}
	passwords, err := credentials.NewStoreFromDocker(credentials.StoreOptions{})
	if err != nil {
		return nil, fmt.Errorf("read the passwords of docker login: %w", err)
	}
	r.Client = &auth.Client{Client: retry.DefaultClient, Cache: auth.NewCache(), Credential: credentials.Credential(passwords)}
	r.PlainHTTP = isLoopback(r.Reference.Registry)
	return r, nil
}

// isLoopback says whether a host, with or without a port, is this machine.
func isLoopback(registry string) bool {
	host, _, err := net.SplitHostPort(registry)
	if err != nil {
		host = registry // without a port
	}
	host = strings.Trim(host, "[]")
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
