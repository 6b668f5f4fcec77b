// Command release builds everything that a release of Tenon consists of: images,
// the chart with their digests, the plugin of kubectl with its manifest for Krew, the
// programs of one machine, lists of modules and licences, checksums, and one bundle of
// all that for a cluster without a way out. The same sources give the same bytes.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"tenon.sh/tenon/deploy/pack"
)

// platforms are those of the plugin.
const platforms = "linux/amd64,linux/arm64,darwin/amd64,darwin/arm64,windows/amd64,windows/arm64"

// semver matches a version as Helm and Krew want it, with a v before it.
var semver = regexp.MustCompile(`^v(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?$`)

// A release says what to build, and collects what was built.
type release struct {
	pack.Order
	registry  string // where the images will be; empty: the user of the chart says so
	downloads string // the URL below which the archives will be; empty: Krew gets them as files
	out       string
	plugins   []archive
	builds    []pack.Build
}

func main() { pack.Main("release", run) }

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("release", flag.ContinueOnError)
	var r release
	flags.StringVar(&r.Version, "version", "", "the version, such as v1.2.3")
	flags.StringVar(&r.registry, "registry", "", "the registry of the images, with the path in it; empty: who installs the chart names it")
	flags.StringVar(&r.downloads, "downloads", "", "the URL below which the archives will be; empty: the manifest for Krew names files")
	flags.StringVar(&r.out, "out", "bin/release", "where the release goes; what is there is removed")
	flags.StringVar(&r.Work, "work", "bin/programs", "where the built programs go")
	images := flags.String("images", "tenond,tenon-manager,tenon-scheduler", "the images, separated by commas")
	arches := flags.String("arch", "amd64,arm64", "the processors of the images")
	machines := flags.String("machine", "linux/amd64,linux/arm64", "the platforms of the programs of one machine")
	plugins := flags.String("plugin", platforms, "the platforms of the plugin")
	if err := r.Parse(flags, args); err != nil {
		return err
	}
	if !semver.MatchString(r.Version) {
		return fmt.Errorf("the version of a release is v1.2.3 or v1.2.3-rc.1, and not %q", r.Version)
	}
	machine, err := platformsOf("machine", *machines)
	if err != nil {
		return err
	}
	plugin, err := platformsOf("plugin", *plugins)
	if err != nil {
		return err
	}
	if err := emptied(r.out); err != nil {
		return err
	}
	built, err := r.images(ctx, listed(*images), listed(*arches))
	if err != nil {
		return err
	}
	if err := r.chart(built); err != nil {
		return err
	}
	if _, err := r.archives(ctx, pack.Machine, machine); err != nil {
		return err
	}
	if r.plugins, err = r.archives(ctx, pack.Plugin, plugin); err != nil {
		return err
	}
	for _, step := range []func() error{r.krew, r.licences, func() error { return r.manual(built) }, r.sums, r.bundle} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// listed returns the words of a list with commas; an empty one has none.
func listed(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' })
}

// platformsOf returns the platforms that a flag lists, each as SYSTEM/PROCESSOR.
func platformsOf(flag, list string) (all []pack.Platform, err error) {
	for _, name := range listed(list) {
		system, arch, _ := strings.Cut(name, "/")
		if system == "" || arch == "" || strings.Contains(arch, "/") {
			return nil, fmt.Errorf("--%s: %q: want SYSTEM/PROCESSOR, such as linux/amd64", flag, name)
		}
		all = append(all, pack.Platform{OS: system, Arch: arch})
	}
	return all, nil
}

// sumsFile has the checksums of a release.
const sumsFile = "SHA256SUMS"

// marks are the files by which a complete release is known, so that nothing else is removed.
var marks = []string{sumsFile, "INSTALL.md", filepath.Join("krew", "tenon.yaml")}

// emptied makes a folder that is empty. It removes an older release, and refuses a folder
// with other files.
func emptied(dir string) error {
	complete := !slices.ContainsFunc(marks, func(name string) bool {
		_, err := os.Stat(filepath.Join(dir, name))
		return err != nil
	})
	if complete {
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	entries, err := os.ReadDir(dir)
	if err == nil && len(entries) > 0 {
		err = fmt.Errorf("%s has files and is no complete release: remove it", dir)
	}
	return err
}

// images builds the images, with their lists of modules.
func (r *release) images(ctx context.Context, names, arches []string) (all []pack.Image, err error) {
	for _, p := range pack.Images {
		if !slices.Contains(names, p.Name) {
			continue
		}
		i, err := r.Image(ctx, p, r.registry, arches, filepath.Join(r.out, "images"))
		if err != nil {
			return nil, fmt.Errorf("make the image %s: %w", p.Name, err)
		}
		for _, b := range i.Builds {
			if err := r.keep(b); err != nil {
				return nil, err
			}
		}
		fmt.Println(i.Digest, i.Name)
		all = append(all, i)
	}
	return all, nil
}

// keep writes the list of modules of a build, and remembers them.
func (r *release) keep(b pack.Build) error {
	r.builds = append(r.builds, pack.Build{Product: b.Product, Platform: b.Platform, Modules: b.Modules})
	return r.WriteSBOM(b, filepath.Join(r.out, "sbom"))
}
