"""A scheduler as a process: flags, logs, signals, and the order in which everything starts and ends.

    flag_kinds.py    values of flags: how a text is read, and what is said of one that cannot be
    flags.py         the table of all flags
    command_line.py  arguments → values of flags; usage
    settings.py      flags and configuration file → what the process is to do
    logs.py          klog's text and JSON forms for Python's logging
    endpoints.py     what is served over HTTPS
    debugging.py     what a signal has it tell about itself
    permissions.py   all that is asked of the API server
    process.py       connect, follow, elect, serve, schedule; stop in the opposite order

The flags, their precedence, messages and exit codes are those of kube-scheduler v1.36.
"""
