"""The web page that shows a cluster and its scheduler.

overview.py   the nodes with what is requested on them, at any point of a history
hub.py        one subscription to a cluster for all viewers, and none without a viewer
sources.py    histories from files, simulations and recordings
questions.py  explanations, what-if answers and comparisons on a state of the history
queue.py      the pending pods by workload and reason
shared.py     pod groups and capacity queues
writing.py    cordon, uncordon, evict: with --allow-writes only
access.py     who may see it: the link, the login, Host and Origin
server.py     HTTP: the API (docs/ui-api.md), the stream of changes, the files below static/

What the page has seen is a history (`process/history.py`), which can be a file (`process/recording.py`).
The page itself is in static/: ES modules without a build step. It contains no scheduling rules.
"""
