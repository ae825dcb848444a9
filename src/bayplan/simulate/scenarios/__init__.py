"""Scenarios of `bayplan simulate run`: a cluster, its workload and its failures, in virtual time.

    schema.py, reading.py     the scenario file: its fields, and reading it with errors that name the field
    inputs.py                 times of arrival, run times, nodes and traces that the file describes
    scheduler_perf.py         workloads of Kubernetes' scheduler_perf
    workloads.py, pods.py     what arrives when; pods and their owners
    world.py                  the life of pods and nodes in virtual time
    figures.py                what is measured
    run.py                    one simulation from scenario to result
    result.py, output.py, report.py   the result; as tables and CSV; as an HTML page

The scheduler is the one of `bayplan run`; only the API server is in memory (`bayplan.simulate.memory`).
"""
