"""Fuzzing: generated and mutated inputs for every interface of the program. `make fuzz MINUTES=10`.

    mutation.py   changes documents where it hurts: extreme values, wrong types, missing and repeated parts
    samples.py    valid documents to begin with
    oracle.py     what counts as a finding, whatever the input
    targets/      the doors: commands, kubeconfigs, objects through the scheduler, requests to the embedded
                  cluster, answers of extenders. Each makes an input from a seed and runs it
    running.py    many seeds in worker processes; a worker that dies is a finding, too
    __main__.py   the command line
    test_fuzz.py  a few seeds of each target, as part of `make test`

An input follows from its target and its seed alone. A finding is saved with its input:
`python -m tests.fuzz --input FILE` runs it again, even after the generators have changed.
"""
