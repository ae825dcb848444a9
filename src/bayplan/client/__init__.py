"""Reading a cluster and keeping up with it."""
