"""Kubernetes' own packages as an oracle for generated inputs: device selectors, and allocations of devices.

The Go files here are the program that answers; `comparing.py` asks it and bayplan the same.
"""
