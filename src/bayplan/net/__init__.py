"""What every HTTP edge shares.

`listening.py` serves clients within limits, `ports.py` binds a port before there is a server for it, `tls.py`
is TLS on both sides, and `http_logs.py` keeps passwords out of the logs.
"""
