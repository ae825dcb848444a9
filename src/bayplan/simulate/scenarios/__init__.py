"""Scenarios of `bayplan simulate run`: a cluster, its workload and its failures, in virtual time.

    schema.py, reading.py     the scenario file: its fields, and reading it with errors that name the field
    times.py                  durations, distributions of run times, times of arrival
    traces.py                 arrivals from CSV files
    scheduler_perf.py, benchmarks.py   workloads of Kubernetes' scheduler_perf
    nodes.py, workloads.py    what the file describes as API objects
    pods.py, owners.py, world.py   the life of pods and nodes in virtual time
    figures.py, fragmentation.py   what is measured
    run.py                    one simulation from scenario to result
    result.py, csv_files.py, tables.py, html/   the result, and how it is displayed

The scheduler is the one of `bayplan run`; only the API server is in memory (`bayplan.simulate.memory`).
"""
