"""Simulated clusters in this process: virtual time, injected faults, recorded runs."""
