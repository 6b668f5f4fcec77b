// Package manager publishes the batch resources that the agents report, and answers the webhooks
// of the API server. A cluster has one manager.
//
// The batch resources in the status of a node can always be explained. Only this package writes
// kubernetes.io/batch-cpu and kubernetes.io/batch-memory. One pure function (Decide) decides the
// amounts. The report of the node contains the reason (status.published).
package manager
