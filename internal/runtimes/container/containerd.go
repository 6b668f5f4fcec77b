package container

import (
	"context"
	"errors"
	"fmt"
	"io"

	containersapi "github.com/containerd/containerd/api/services/containers/v1"
	namespacesapi "github.com/containerd/containerd/api/services/namespaces/v1"
	tasksapi "github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/api/types/task"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
)

// containerd is a client of containerd's API. Each request is for one
// namespace, except the one that lists the namespaces.
type containerd struct {
	conn *grpc.ClientConn
}

// namespaceHeader is the gRPC header with the namespace of a request.
const namespaceHeader = "containerd-namespace"

// dockersNamespace is containerd's namespace for the containers of Docker. They
// have no labels there. The type docker lists them with their labels.
const dockersNamespace = "moby"

// nerdctlName is the label in which nerdctl stores the name of a container.
const nerdctlName = "nerdctl/name"

// maxTasks is the maximum size, in bytes, of containerd's answer that lists the
// tasks of a namespace. A task takes much less than 1 KiB. The default limit of
// gRPC, 4 MiB, could be too small for ten thousand tasks.
const maxTasks = 16 << 20

func openContainerd(socket string) (*containerd, error) {
	// TLS is not necessary, because file permissions protect a local socket.
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxTasks)))
	if err != nil {
		return nil, fmt.Errorf("open containerd at %s: %w", socket, err)
	}
	return &containerd{conn: conn}, nil
}

func (c *containerd) List(ctx context.Context) ([]Container, error) {
	spaces, err := namespacesapi.NewNamespacesClient(c.conn).List(ctx, &namespacesapi.ListNamespacesRequest{})
	if err != nil {
		return nil, fmt.Errorf("list the namespaces of containerd: %w", err)
	}
	var all []Container
	for _, space := range spaces.GetNamespaces() {
		if space.GetName() == dockersNamespace {
			continue
		}
		in, err := c.listIn(metadata.AppendToOutgoingContext(ctx, namespaceHeader, space.GetName()))
		if err != nil {
			return nil, fmt.Errorf("list the containers of containerd in namespace %s: %w", space.GetName(), err)
		}
		all = append(all, in...)
	}
	return all, nil
}

func (c *containerd) listIn(ctx context.Context) ([]Container, error) {
	tasks, err := tasksapi.NewTasksClient(c.conn).List(ctx, &tasksapi.ListTasksRequest{})
	if err != nil {
		return nil, err
	}
	pids := map[string]int{}
	for _, t := range tasks.GetTasks() {
		if t.GetStatus() != task.Status_STOPPED {
			pids[t.GetID()] = int(t.GetPid())
		}
	}
	if len(pids) == 0 {
		return nil, nil
	}
	// A stream is used because the list may exceed the size of one message:
	// each container comes with its whole specification, some 10 KiB.
	found, err := containersapi.NewContainersClient(c.conn).ListStream(ctx, &containersapi.ListContainersRequest{})
	if err != nil {
		return nil, err
	}
	var all []Container
	for {
		next, err := found.Recv()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		f := next.GetContainer()
		pid, runs := pids[f.GetID()]
		if !runs {
			continue
		}
		name := f.GetID()
		if given := f.GetLabels()[nerdctlName]; given != "" {
			name = given
		}
		all = append(all, Container{ID: f.GetID(), Name: name, Labels: f.GetLabels(), PID: pid})
	}
}

func (c *containerd) Close() error { return c.conn.Close() }
