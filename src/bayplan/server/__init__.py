"""API servers of our own. There are two, for two purposes.

`store.py` and `memory.py`: typed records in memory, as fast as can be, for benchmarks, recorded runs and the
fault run.

`embedded.py`: documents (JSON) with all their fields, on disk, over HTTPS, for kubectl and any other client.
Read it in this order: `kinds.py` (what there is), `documents.py` and `sqlite.py` (how it is kept),
`objects.py` (what the verbs do), `http/` (how requests come in).
"""
