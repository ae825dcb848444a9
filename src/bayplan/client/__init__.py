"""A Kubernetes API server, from its address to a copy of the cluster that keeps up with it.

    kubeconfig.py, kubeconfig_file.py, proxies.py   where it is, from files and environment: `access.py`
    credentials.py, exec_plugin.py, tls.py          as whom we speak to it, renewed while we run
    connecting.py, connection_pool.py               connections, with TLS, that are kept: `transport.py`
    short_requests.py, responses.py                 short requests, cheaply
    streams.py                                      long answers; through a proxy by aiohttp:
                                                      `proxied_streams.py`
    requests.py, rate_limit.py, request_metrics.py  rates, retries, and errors of the server: `api_errors.py`
    listing.py, watching.py, decoding.py            reading
    bodies.py, events.py                            writing
    http.py                                         all of this as a `ClusterAPI`: `KubernetesCluster`
    informer.py                                     a copy of one kind, whatever gets lost on the way
    leader_election.py, known_lease.py,             of several schedulers one works, and only that one writes:
      lease_events.py                                 `requests.py` asks it before each write
    remedies.py, once_logger.py                     what is logged about errors, and how often

`informer.py` and the election know only the protocols that they use, and run on a store in this process, too.
"""
