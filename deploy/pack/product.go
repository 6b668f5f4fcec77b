// Package pack builds Tenon's programs and packs them: into images, into archives,
// and with lists of what they contain. The same sources give the same bytes.
package pack

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Source is where the sources of Tenon are.
const Source = "https://tenon.sh/tenon"

// A Product is what a user installs: an image, or an archive with programs.
type Product struct {
	Name     string
	About    string
	Programs []string // folders of cmd/; a container runs the first one
	User     string   // of a container; empty: the product is no image
	Module   string   // the folder of the module that has cmd/; empty: the root
	bpf      bool     // the programs contain the compiled objects of bpf/
}

// Images lists the products that are images.
var Images = []Product{
	// tenond runs as root with the capabilities of the manifest, because it
	// writes cgroups.
	{Name: "tenond", About: "Tenon's node agent and its watchdog", Programs: []string{"tenond", "tenon"}, User: "0:0", bpf: true},
	{Name: "tenon-manager", About: "Tenon's controllers and webhooks", Programs: []string{"tenon-manager"}, User: "65532:65532"},
	{Name: "tenon-scheduler", About: "Kubernetes' scheduler with Tenon's choice of CPUs", Programs: []string{"tenon-scheduler"}, User: "65532:65532", Module: "scheduler"},
}

var (
	// Machine has the programs for a machine without a cluster.
	Machine = Product{Name: "tenon", About: "Tenon for one machine", Programs: []string{"tenond", "tenon"}, bpf: true}
	// Plugin is the plugin of kubectl.
	Plugin = Product{Name: "kubectl-tenon", About: "Tenon's plugin of kubectl", Programs: []string{"kubectl-tenon"}}
)

// A Platform is an operating system and a processor, as Go names them.
type Platform struct{ OS, Arch string }

func (p Platform) String() string { return p.OS + "-" + p.Arch }

// A File is a program or a text, with its path in an image or an archive.
type File struct {
	Name string
	Data []byte
	Mode int64 // permissions
}

// A Build is a product that was built for one platform.
type Build struct {
	Product  Product
	Platform Platform
	Programs []File
	Texts    []File   // the licences, below licenses/
	Modules  []Module // of which the programs contain code, in order
}

// An Order says what to build from which sources.
type Order struct {
	Version string
	Root    string // the folder of the sources
	Work    string // the folder of the built programs
	Created time.Time
}

// sourceDate returns the time of the sources that the environment gives as
// SOURCE_DATE_EPOCH (reproducible-builds.org), or else 1970.
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

// Build builds the static programs of a product for a platform, and collects the
// licences of what they contain. It returns an error for a licence that a release may
// not have.
func (o Order) Build(ctx context.Context, p Product, on Platform) (Build, error) {
	b := Build{Product: p, Platform: on}
	dir, err := filepath.Abs(filepath.Join(o.Work, on.String()))
	if err != nil {
		return b, err
	}
	if err := o.compile(ctx, dir, p, on); err != nil {
		return b, err
	}
	for _, name := range p.Programs {
		if on.OS == "windows" {
			name += ".exe"
		}
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return b, err
		}
		b.Programs = append(b.Programs, File{name, data, 0o755})
	}
	if b.Modules, err = modulesOf(b.Programs); err != nil {
		return b, err
	}
	b.Texts, err = o.licences(ctx, p, b.Modules)
	return b, err
}

func (o Order) compile(ctx context.Context, dir string, p Product, on Platform) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	stamp := "-s -w -X main.version=" + o.Version
	if p.Module != "" {
		release, err := kubernetes(filepath.Join(o.Root, p.Module, "go.mod"))
		if err != nil {
			return err
		}
		stamp += " -X k8s.io/component-base/version.gitVersion=" + release
	}
	args := []string{"build", "-trimpath", "-buildvcs=false", "-ldflags", stamp, "-o", dir + string(filepath.Separator)}
	for _, name := range p.Programs {
		args = append(args, "./cmd/"+name)
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = filepath.Join(o.Root, p.Module)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+on.OS, "GOARCH="+on.Arch)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("go build for %s: %w", on, err)
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

// Tag makes a valid image tag from a version: _ replaces each character that a
// tag must not contain, such as + in a semantic version.
func Tag(version string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '-' || r == '_' {
			return r
		}
		return '_'
	}, version)
}
