"""Simulated clusters in this process: virtual time, recorded runs, scenarios."""
