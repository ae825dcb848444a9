"""The client of a Kubernetes API server: from its address to an up-to-date copy of the cluster.

    access.py, kubeconfig.py          the address and the credentials, from files and environment
    credentials.py                    credentials that are renewed at run time
    transport.py, connection_pool.py  requests and responses as bytes, over reused connections with TLS
    short_requests.py, streams.py     short requests, cheaply, and long responses
    requests.py, api_errors.py        rate limit, retries, metrics, and errors of the server
    list_watch.py, decoding.py        reading
    bodies.py                         writing
    http.py                           all of this as a `ClusterAPI`: `KubernetesCluster`
    informer.py                       a copy of one kind, even if events are lost
    leader_election.py                one of several schedulers is active and writes: `requests.py` checks it
                                        before each write

`informer.py` and the election depend only on protocols, so they also work with a store in this process.
"""
