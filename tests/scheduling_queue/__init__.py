"""Tests of `bayplan.scheduling_queue`.

One folder deeper than elsewhere: a package that is itself named `queue` would take the place of Python's own
module of that name while the tests run.
"""
