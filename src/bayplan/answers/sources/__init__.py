"""A cluster from files, a snapshot or an API server, as one typed value.

loading.py      what a command loads, with the scheduler's configuration: `load_cluster(SourceOptions(…))`
loaded.py       the result: `LoadedCluster`
files.py        reads files, directories, standard input and scenarios
snapshot.py     reads and writes snapshots; reads the lists that kubectl writes
live.py         lists a live cluster, read only; asks a running scheduler for a pod's position in its queue
redaction.py    replaces names and labels in a snapshot
warnings.py     `Warning`: a way in which a result may be wrong; finds the objects that are missing
"""
