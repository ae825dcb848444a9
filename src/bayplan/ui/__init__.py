"""The page: a cluster and its scheduler to look at, in a browser.

history.py    what the page has seen: objects, their changes and the scheduler's attempts, in bounded memory
overview.py   the nodes with what is requested on them, at any point of a history
hub.py        one subscription to a cluster for all viewers, and none without a viewer
recording.py  a history as a file
sources.py    histories from files, simulations and recordings
questions.py  explanations, what-if answers and comparisons on a state of the history
queue.py      the pending pods in groups
access.py     who may see it: the link, the login, Host and Origin
server.py     HTTP: the API (docs/ui-api.md), the stream of changes, the files below static/

The page itself is in static/: ES modules without a build step. It knows nothing about scheduling.
"""
