// Package examples has those manifests of this folder that a program uses itself, so
// that both are one text.
package examples

import _ "embed"

// ThirdMode is the ConfigMap of the third mode of the published experiment on
// colocation: every feature is on, with its default values, and CPU suppress at 65 %.
//
//go:embed colocation/slo-controller-config.yaml
var ThirdMode []byte
