"""A scheduler as a process: flags, logs, signals, and the order of start and stop.

    flag_kinds.py    types of flags: how a text is parsed, and the error if it is invalid
    flags.py         the table of all flags
    command_line.py  arguments → values of flags; usage
    settings.py      flags and configuration file → settings of the process
    logs.py          klog's text and JSON forms for Python's logging
    endpoints.py     what is served over HTTPS
    debugging.py     the dump on SIGUSR2
    permissions.py   all requests to the API server
    process.py       connect, sync, elect, serve, schedule; stop in the opposite order

The flags, their precedence, messages and exit codes are those of kube-scheduler v1.36 and v1.37.
"""
