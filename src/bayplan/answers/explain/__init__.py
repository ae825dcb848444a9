"""Why: a decision about a pod with all its reasons.

explanation.py   `explain`: every filter, score and preemption candidate for one pod
rejections.py    rejected nodes in groups; details.py says which taint, label, pod or volume is in the way
questions.py     everything about one pod or node of a loaded cluster
report.py        these as plain values; tables.py and printing.py as tables for a terminal
upgrade.py       what two Kubernetes versions decide differently
"""
