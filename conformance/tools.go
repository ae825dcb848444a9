//go:build tools

// Package conformance names the programs that bayplan is compared with.
//
// Nothing here is compiled into bayplan: the imports keep in go.mod what these programs need, so that
// conformance/harness can build exactly these versions. See docs/conformance.md.
package conformance

import (
	_ "k8s.io/kubernetes/cmd/kube-apiserver"
	_ "k8s.io/kubernetes/cmd/kube-controller-manager"
	_ "k8s.io/kubernetes/cmd/kube-scheduler"
	_ "k8s.io/kubernetes/cmd/kubectl"
	_ "k8s.io/kubernetes/test/e2e"
)
