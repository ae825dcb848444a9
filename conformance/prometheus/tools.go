//go:build tools

// Package tools names the Prometheus whose parsers check deploy/monitoring in tests.
package tools

import _ "github.com/prometheus/prometheus/model/rulefmt"
