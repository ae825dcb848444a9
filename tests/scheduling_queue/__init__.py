"""Tests of `bayplan.scheduling_queue`."""
