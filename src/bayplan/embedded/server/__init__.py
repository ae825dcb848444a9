"""The embedded API server: documents (JSON) with all their fields, on disk, served over HTTPS.

Read it in this order: `kinds.py` and `catalog.py` (the resources), `documents.py` and `sqlite.py` (storage),
`objects.py` (what each verb does), `http/` (how requests are handled), `embedded.py` (the server as a whole).
`embedded_cluster.py` gives the scheduler of the same process access without HTTP.
"""
