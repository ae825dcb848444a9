"""Requests to an API server and what kube-apiserver answers, for comparing the embedded one with it."""
