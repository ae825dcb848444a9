"""A scheduler as a process: flags, logs, signals, and the order of start and stop.

    flags.py         the table of all flags, and how their values are parsed
    command_line.py  arguments → values of flags; usage
    settings.py      flags and configuration file → settings of the process
    logs.py          klog's text and JSON forms for Python's logging
    starting.py      from flags to a running process, and to its exit status
    process.py       connect, sync, elect, serve, schedule; stop in the opposite order; the dump on SIGUSR2
    history.py       what was seen of a cluster: objects, changes, attempts, in bounded memory
    recording.py     a history as a file
    tracing.py       which attempts are sampled, and how they are followed
    spans.py         what is noted of an attempt, and its spans in the encoding of OTLP
    otlp.py          sends them to an OpenTelemetry receiver
    endpoints.py     what is served over HTTPS, by serving/

The flags, their precedence, messages and exit codes are those of kube-scheduler v1.36 and v1.37.
"""
