"""Questions about a cluster: where it is read from (`sources`), why (`explain`) and what if (`whatif`)."""
