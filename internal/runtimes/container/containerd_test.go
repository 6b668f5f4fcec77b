package container

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"

	containersapi "github.com/containerd/containerd/api/services/containers/v1"
	namespacesapi "github.com/containerd/containerd/api/services/namespaces/v1"
	tasksapi "github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/api/types/task"
	"google.golang.org/grpc"
)

// containerCount is the number of containers in the test. Every second one
// runs. The list of all containers or tasks exceeds the default size of a gRPC
// message.
const containerCount = 2000

var bulk = strings.Repeat("x", 5000)

type crowdSpaces struct {
	namespacesapi.UnimplementedNamespacesServer
}

func (crowdSpaces) List(context.Context, *namespacesapi.ListNamespacesRequest) (*namespacesapi.ListNamespacesResponse, error) {
	return &namespacesapi.ListNamespacesResponse{Namespaces: []*namespacesapi.Namespace{{Name: "default"}}}, nil
}

type crowdTasks struct {
	tasksapi.UnimplementedTasksServer
}

func (crowdTasks) List(context.Context, *tasksapi.ListTasksRequest) (*tasksapi.ListTasksResponse, error) {
	var all tasksapi.ListTasksResponse
	for i := range containerCount / 2 {
		all.Tasks = append(all.Tasks, &task.Process{ID: fmt.Sprint("job-", 2*i), Pid: uint32(100 + i), Status: task.Status_RUNNING, Stdin: bulk})
	}
	return &all, nil
}

type crowdContainers struct {
	containersapi.UnimplementedContainersServer
}

func (crowdContainers) ListStream(_ *containersapi.ListContainersRequest, to containersapi.Containers_ListStreamServer) error {
	for i := range containerCount {
		c := &containersapi.Container{ID: fmt.Sprint("job-", i), Labels: map[string]string{"bulk": bulk}}
		if err := to.Send(&containersapi.ListContainerMessage{Container: c}); err != nil {
			return err
		}
	}
	return nil
}

func TestContainerdMayHaveManyContainers(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	do(t, err)
	server := grpc.NewServer()
	namespacesapi.RegisterNamespacesServer(server, crowdSpaces{})
	tasksapi.RegisterTasksServer(server, crowdTasks{})
	containersapi.RegisterContainersServer(server, crowdContainers{})
	go func() { _ = server.Serve(l) }()
	t.Cleanup(server.Stop)
	all, err := list(t, "containerd://"+socket)
	if len(all) != containerCount/2 || err != nil {
		t.Fatalf("%d containers, %v", len(all), err)
	}
	if last := all[len(all)-1]; last.Name != "job-1998" || last.PID != 1099 || last.Labels["bulk"] != bulk {
		t.Errorf("the last is %s, process %d", last.Name, last.PID)
	}
}
