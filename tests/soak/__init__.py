"""The soak: a large embedded cluster under constant churn for half an hour. `make soak`.

    program.py       `bayplan up` as a process: started, killed, started again on the same data directory
    clients.py       its clients: pods come and go, watchers read, slow clients hardly read
    measurements.py  what is measured, what has to hold
    __main__.py      the command line
    test_soak.py     a soak of a few seconds, as part of `make test`

The number of objects stays the same, so memory has to. Pods are deleted when enough are there, and events
once a minute: the cluster itself would keep them for an hour.
"""
