"""Compares the real kube-scheduler and bayplan on scenarios that are generated from a seed."""
