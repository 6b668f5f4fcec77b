// Package manager is the part of Tenon that a cluster has once: it publishes
// what the nodes' agents report as batch resources, and answers the API
// server's webhooks.
//
// One rule makes the node's status explainable: only this package writes
// kubernetes.io/batch-cpu and kubernetes.io/batch-memory there, what it writes
// is decided by one pure function (Decide), and the reason stands in the
// report of the node (status.published).
package manager
