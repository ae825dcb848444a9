//go:build tools

// Package descheduler names the descheduler that bayplan is compared with.
package descheduler

import _ "sigs.k8s.io/descheduler/cmd/descheduler"
