"""Evaluates recorded scenarios of other schedulers, and prints results to compare with the recorded ones."""
