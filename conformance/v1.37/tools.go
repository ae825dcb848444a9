//go:build tools

// Package conformance names the programs of Kubernetes v1.37 that bayplan is compared with.
//
// The imports keep in go.mod what these programs need, as in ../tools.go for v1.36.
package conformance

import (
	_ "k8s.io/kubernetes/cmd/kube-apiserver"
	_ "k8s.io/kubernetes/cmd/kube-controller-manager"
	_ "k8s.io/kubernetes/cmd/kube-scheduler"
	_ "k8s.io/kubernetes/cmd/kubectl"
)
