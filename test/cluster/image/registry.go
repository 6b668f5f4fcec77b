package image

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
)

// A Registry is a read-only image registry over several layouts (OCI
// distribution specification, pull). The first layout that has an image
// provides it. The registry is a mirror of every registry: containerd adds the
// query ns=HOST, and HOST becomes the first part of the image's name.
type Registry []Layout

// Handler returns the HTTP handler of the registry.
func (reg Registry) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v2/", func(w http.ResponseWriter, r *http.Request) {
		rest := strings.TrimPrefix(r.URL.Path, "/v2/")
		if rest == "" {
			_, _ = io.WriteString(w, "{}")
			return
		}
		if repository, digest, ok := cutLast(rest, "/blobs/"); ok {
			reg.serve(w, r, Descriptor{MediaType: "application/octet-stream", Digest: digest}, repository)
			return
		}
		repository, reference, ok := cutLast(rest, "/manifests/")
		if !ok {
			http.NotFound(w, r)
			return
		}
		if strings.HasPrefix(reference, "sha256:") {
			d, err := reg.find(reference)
			if err != nil { // only indexes name this blob, so its type is in its content
				d = Descriptor{MediaType: typeManifest, Digest: reference}
			}
			reg.serve(w, r, d, repository)
			return
		}
		name := r.URL.Query().Get("ns") + "/" + repository + ":" + reference
		d, err := reg.find(name)
		if err != nil {
			refuse(w, "MANIFEST_UNKNOWN", name)
			return
		}
		reg.serve(w, r, d, repository)
	})
	return mux
}

func (reg Registry) find(name string) (d Descriptor, err error) {
	for _, l := range reg {
		if d, err = l.Find(name); err == nil {
			return d, nil
		}
	}
	return d, err
}

func (reg Registry) open(digest string) (f *os.File, err error) {
	for _, l := range reg {
		if f, err = os.Open(l.path(digest)); err == nil {
			return f, nil
		}
	}
	return nil, err
}

func (reg Registry) serve(w http.ResponseWriter, r *http.Request, d Descriptor, repository string) {
	f, err := reg.open(d.Digest)
	if err != nil || strings.ContainsAny(strings.TrimPrefix(d.Digest, "sha256:"), "/:.") {
		refuse(w, "BLOB_UNKNOWN", repository+"@"+d.Digest)
		return
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", d.MediaType)
	w.Header().Set("Docker-Content-Digest", d.Digest)
	w.Header().Set("Content-Length", strconv.FormatInt(info.Size(), 10))
	http.ServeContent(w, r, "", info.ModTime(), f)
}

func refuse(w http.ResponseWriter, code, what string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusNotFound)
	_, _ = fmt.Fprintf(w, `{"errors":[{"code":%q,"message":%q}]}`, code, "this registry has no "+what)
}

func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}
