// Package cri asks a container runtime whether its Kubernetes service answers.
package cri

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/emptypb"
)

// Check returns nil if the Container Runtime Interface at a Unix socket answers.
// containerd itself answers earlier. A kubelet that starts in between ends with
// an error.
func Check(ctx context.Context, socket string) error {
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err == nil {
		defer conn.Close()
		// Any message can hold the fields of another one.
		err = conn.Invoke(ctx, "/runtime.v1.RuntimeService/Version", &emptypb.Empty{}, &emptypb.Empty{})
	}
	if err != nil {
		return fmt.Errorf("the container runtime does not answer: %w", err)
	}
	return nil
}
