//go:build tools

// Package etcd names the etcd that offers streaming lists: Debian's is too old for them.
//
// A module of its own, so that it does not change what the Kubernetes programs are built from.
package etcd

import _ "go.etcd.io/etcd/server/v3"
