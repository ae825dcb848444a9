"""Requests to an API server with the responses of kube-apiserver, to compare the embedded server with it."""
