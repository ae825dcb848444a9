//go:build tools

// Package conformance names Kubernetes' end-to-end tests of v1.37.
//
// They have a module of their own: most uses of v1.37 need the programs alone, and the tests take minutes to
// build.
package conformance

import (
	_ "k8s.io/kubernetes/test/e2e"
)
