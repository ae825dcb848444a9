//go:build tools

// Package tools names the helm that renders deploy/chart in tests.
package tools

import _ "helm.sh/helm/v3/cmd/helm"
