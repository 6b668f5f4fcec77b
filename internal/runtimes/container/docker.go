package container

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

// docker is a client of Docker's Engine API (docs.docker.com/reference/api/engine,
// "List containers"). Podman has the same API.
type docker struct {
	kind   string
	client *http.Client
}

// listContainers is the URL of the list. It names no version of the API,
// because an engine refuses old versions (Docker 29: below 1.44). The engine
// then answers in its newest version, and Podman does, too. The fields that
// Tenon reads are the same in all versions.
const listContainers = "http://local/containers/json?all=1"

// maxSaid is the maximum length, in bytes, of an engine's answer in an error
// message. Longer answers are cut.
const maxSaid = 200

// maxAnswer is the maximum length of a list of containers in bytes. A container
// takes 1 to 4 KB of it.
const maxAnswer = 256 << 20

func openDocker(kind, socket string) *docker {
	transport := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", socket)
		},
		MaxIdleConns: 1, IdleConnTimeout: 10 * time.Second,
	}
	return &docker{kind: kind, client: &http.Client{Transport: transport}}
}

// dockerContainer is a container in the engine's answer.
type dockerContainer struct {
	ID     string `json:"Id"`
	Names  []string
	Labels map[string]string
	State  string
}

func (d *docker) List(ctx context.Context) ([]Container, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, listContainers, nil)
	if err != nil {
		return nil, fmt.Errorf("list the containers of %s: %w", d.kind, err)
	}
	answer, err := d.client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("list the containers of %s: %w", d.kind, err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		said, _ := io.ReadAll(io.LimitReader(answer.Body, maxSaid)) //nolint:errcheck // the status suffices if the body cannot be read
		return nil, fmt.Errorf("list the containers of %s: it answers %s: %s", d.kind, answer.Status, bytes.TrimSpace(said))
	}
	var found []dockerContainer
	if err := json.NewDecoder(io.LimitReader(answer.Body, maxAnswer)).Decode(&found); err != nil {
		return nil, fmt.Errorf("list the containers of %s: %w", d.kind, err)
	}
	var all []Container
	for _, f := range found {
		switch f.State {
		case "exited", "dead", "removing", "stopped":
			continue
		}
		c := Container{ID: f.ID, Name: f.ID, Labels: f.Labels}
		if len(f.Names) > 0 {
			c.Name = strings.TrimPrefix(f.Names[0], "/")
		}
		all = append(all, c)
	}
	return all, nil
}

func (d *docker) Close() error {
	d.client.CloseIdleConnections()
	return nil
}
