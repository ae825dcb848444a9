"""Recorded results of cluster-level scheduling, and their comparison."""
