package pull

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"maps"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"tenon.sh/tenon/internal/cluster/past"
	"tenon.sh/tenon/internal/decide/prospect"
)

const (
	format   = 1
	manifest = "source.json"
)

// asked is what a folder was begun with. A reading with anything else is another one.
type asked struct {
	URL    string `json:"url"`
	Sender string `json:"sender,omitempty"` // a hash: another tenant has other nodes
	Choice
}

// A found is what a server has, and what of it is read. It is the first file of a
// folder.
type found struct {
	Format   int            `json:"format"`
	Asked    asked          `json:"asked"`
	Window   past.Window    `json:"window"`
	Sources  past.Sources   `json:"sources"`
	Names    []string       `json:"names"`             // of all nodes that were there at the end
	Gone     int            `json:"gone,omitempty"`    // nodes that were not, which are left out
	Unsized  int            `json:"unsized,omitempty"` // nodes whose size is not known, which are left out
	Machines []past.Machine `json:"machines"`          // those that are read
}

// A folder has the finished parts.
type folder struct {
	found
	dir string
}

// differences says which options differ from those of now, by the keys of JSON.
func (a asked) differences(now asked) (all []string) {
	then, other := reflect.ValueOf(a), reflect.ValueOf(now)
	for _, f := range reflect.VisibleFields(then.Type()) {
		is, want := then.FieldByIndex(f.Index).Interface(), other.FieldByIndex(f.Index).Interface()
		if f.Anonymous || reflect.DeepEqual(is, want) {
			continue
		}
		key, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch key {
		case "sender": // a hash
			all = append(all, "the user or the headers")
		case "rules":
			all = append(all, "the rules of the room")
		default:
			all = append(all, fmt.Sprintf("%s is %v there, not %v", strings.ReplaceAll(key, "_", "-"), is, want))
		}
	}
	return all
}

// partsIn is the pattern of the names of parts.
const partsIn = "????-??-??-????*.json.gz"

// open opens a folder that was begun. It returns nil if there is none.
func open(dir string, a asked) (*folder, error) {
	text, err := os.ReadFile(filepath.Join(dir, manifest))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, withoutParts(dir)
	}
	if err != nil {
		return nil, fmt.Errorf("open the folder of the past: %w", err)
	}
	f := &folder{dir: dir}
	if err := json.Unmarshal(text, &f.found); err != nil {
		return nil, fmt.Errorf("read %s: %w", filepath.Join(dir, manifest), err)
	}
	if f.Format != format {
		return nil, fmt.Errorf("%s: %w: its format is %d, not %d", dir, ErrOther, f.Format, format)
	}
	if other := f.Asked.differences(a); len(other) > 0 {
		return nil, fmt.Errorf("%s: %w (%s)", dir, ErrOther, strings.Join(other, ", "))
	}
	return f, nil
}

// withoutParts returns an error if a directory has parts. Without the first file, it is not
// known what they are of.
func withoutParts(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("open the folder of the past: %w", err)
	}
	for _, e := range entries {
		if is, err := path.Match(partsIn, e.Name()); err == nil && is {
			return fmt.Errorf("%s: %w", dir, ErrNoManifest)
		}
	}
	return nil
}

func create(dir string, has found) (*folder, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the folder of the past: %w", err)
	}
	text, err := json.MarshalIndent(has, "", " ")
	if err != nil {
		return nil, err
	}
	return &folder{has, dir}, write(filepath.Join(dir, manifest), append(text, '\n'))
}

// write writes a file that is whole or not there.
func write(name string, text []byte) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("keep a part of the past: %w", err)
		}
	}()
	t, err := os.CreateTemp(filepath.Dir(name), ".part-")
	if err != nil {
		return err
	}
	defer os.Remove(t.Name()) // there is none after the rename
	_, err = t.Write(text)
	if err = errors.Join(err, t.Sync(), t.Close()); err != nil {
		return err
	}
	return os.Rename(t.Name(), name)
}

// parts returns the nodes of each part.
func (f *folder) parts() [][]past.Machine {
	return slices.Collect(slices.Chunk(f.Machines, f.Asked.AtOnce))
}

func (f *folder) file(of int64, part int) string {
	return filepath.Join(f.dir, fmt.Sprintf("%s-%04d.json.gz", dateOf(of), part+1))
}

// has reports whether a part is finished.
func (f *folder) has(of int64, part int) bool {
	_, err := os.Stat(f.file(of, part))
	return err == nil // a part that cannot be seen is read again, and then an error
}

func (f *folder) keep(of int64, part int, nodes []past.NodeDay) error {
	text, err := json.Marshal(nodes)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	z := gzip.NewWriter(&b) // its header has no time, so the bytes are always the same
	_, err = z.Write(text)
	if err := errors.Join(err, z.Close()); err != nil {
		return err
	}
	return write(f.file(of, part), b.Bytes())
}

func (f *folder) load(of int64, part int) (nodes []past.NodeDay, err error) {
	name := f.file(of, part)
	defer func() {
		if err != nil {
			err = fmt.Errorf("read %s: %w", name, err)
			if !errors.As(err, new(*fs.PathError)) {
				err = fmt.Errorf("%w: the file is damaged: delete it, and the same command reads this part again", err)
			}
		}
	}()
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	z, err := gzip.NewReader(file)
	if err != nil {
		return nil, err
	}
	if err := json.NewDecoder(z).Decode(&nodes); err != nil {
		return nil, err
	}
	_, err = io.Copy(io.Discard, z) // the checksum is at the end
	return nodes, err
}

// A Past is a folder that is complete.
type Past struct {
	*folder
	anonymous bool
}

// A Summary says what a Past has.
type Summary struct {
	Window  past.Window
	Sources past.Sources
	Known   int // nodes that the server knows, and that were there at the end
	Gone    int // nodes that were not, and are left out
	Unsized int // of them are left out, because their size is not known
	Read    int // are read
}

// Drawn reports whether a part of the nodes was drawn.
func (s Summary) Drawn() bool { return s.Read+s.Unsized < s.Known }

// Summary says what was read.
func (p *Past) Summary() Summary {
	return Summary{Window: p.Window, Sources: p.Sources, Known: len(p.Names), Gone: p.Gone, Unsized: p.Unsized, Read: len(p.Machines)}
}

// Nodes returns the nodes one by one, in the order of their names. It holds the nodes of
// one part in memory. After an error, there are no more.
func (p *Past) Nodes() iter.Seq2[prospect.Node, error] {
	return func(yield func(prospect.Node, error) bool) {
		var a past.Aliases
		if p.anonymous {
			var err error
			if a, err = p.aliases(); err != nil {
				yield(prospect.Node{}, err)
				return
			}
		}
		for i, machines := range p.parts() {
			days, err := p.days(i)
			if err != nil {
				yield(prospect.Node{}, err)
				return
			}
			for _, m := range machines {
				n := p.Window.Node(m, p.Sources, p.Asked.Rules, days[m.Name])
				if p.anonymous {
					n = a.Hide(n)
				}
				if !yield(n, nil) {
					return
				}
			}
		}
	}
}

// days returns the days of the nodes of a part.
func (p *Past) days(part int) (map[string][]*past.NodeDay, error) {
	all := map[string][]*past.NodeDay{}
	for i := range p.Window.Days {
		nodes, err := p.load(p.Window.First+i, part)
		if err != nil {
			return nil, err
		}
		for k := range nodes {
			of := all[nodes[k].Name]
			if of == nil {
				of = make([]*past.NodeDay, p.Window.Days)
				all[nodes[k].Name] = of
			}
			of[i] = &nodes[k]
		}
	}
	return all, nil
}

// aliases numbers the names of all nodes, pools and services.
func (p *Past) aliases() (past.Aliases, error) {
	pools, services := map[string]bool{}, map[string]bool{}
	for _, m := range p.Machines {
		if m.Pool != "" {
			pools[m.Pool] = true
		}
	}
	for i := range p.parts() {
		days, err := p.days(i)
		if err != nil {
			return past.Aliases{}, err
		}
		for _, of := range days {
			for _, d := range of {
				if d == nil {
					continue
				}
				for _, h := range d.Held {
					services[h.Service] = true
				}
			}
		}
	}
	return past.AliasesOf(p.Names, slices.Sorted(maps.Keys(pools)), slices.Sorted(maps.Keys(services))), nil
}
