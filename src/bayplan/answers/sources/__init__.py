"""A cluster from files, a snapshot or an API server, as one typed value.

options.py      what a command loads: `SourceOptions`
loading.py      loads it: `load_cluster`
loaded.py       the result: `LoadedCluster`
settings.py     the scheduler configuration and plugins to evaluate it with
files.py        YAML and JSON files, directories, standard input
scenario.py     scenarios: a cluster and pods as one JSON object
live.py         lists from an API server, read only
missing.py      objects that pods refer to and that were not loaded
warnings.py     `Warning`: a way in which a result may be wrong
"""
