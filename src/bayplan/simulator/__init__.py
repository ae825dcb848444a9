"""Clusters that exist only in this process: virtual time, and a cluster that breaks as real ones do."""
