"""Tests of bayplan with the real programs: see docs/conformance.md."""
