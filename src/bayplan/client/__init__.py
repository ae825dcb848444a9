"""The client of a Kubernetes API server: from its address to an up-to-date copy of the cluster.

    kubeconfig.py, kubeconfig_file.py, proxies.py   address and credentials from files and environment:
    `access.py` credentials.py, exec_plugin.py, tls.py          credentials, renewed at run time
    connecting.py, connection_pool.py               reused connections with TLS: `transport.py`
    short_requests.py, responses.py                 short requests, cheaply streams.py
    long responses; through a proxy with aiohttp:
                                                      `proxied_streams.py`
    requests.py, rate_limit.py, request_metrics.py  rates, retries, and errors of the server: `api_errors.py`
    listing.py, watching.py, decoding.py            reading
    bodies.py, events.py                            writing
    http.py                                         all of this as a `ClusterAPI`: `KubernetesCluster`
    informer.py                                     a copy of one kind, even if events are lost
    leader_election.py, known_lease.py,             one of several schedulers is active and writes:
      lease_events.py                                 `requests.py` checks it before each write
    remedies.py, once_logger.py                     what is logged about errors, and how often

`informer.py` and the election depend only on protocols, so they also work with a store in this process.
"""
