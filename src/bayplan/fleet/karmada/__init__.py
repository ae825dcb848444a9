"""What karmada-scheduler decides, without I/O: placement, clusters, previous result and estimators in;
clusters with replicas, and every reason, out.

kinds.py        the fields of Karmada's objects that scheduling reads
clusters.py     many Cluster objects as columns; which of them an affinity matches
filters.py      which clusters may take a workload, with all reasons of the others
estimate.py     how many replicas a cluster has room for, from its summary and its resource models
summary.py      that summary, and the estimate of karmada-scheduler-estimator, from nodes and pods
spread.py       which clusters spread constraints select
division.py     how replicas are divided: Duplicated, static and dynamic weights, Aggregated
schedule.py     these steps, one after the other
binding.py      one attempt for a binding: affinity groups, when it is needed, condition and events
templates.py    from a workload to its binding: policies that claim it, replicas and requirements

The rules are those of Karmada 1.19; docs/differences-fleet.md lists what is different here, and why.
"""
