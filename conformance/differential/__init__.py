"""Scenarios made from a seed, given to the real kube-scheduler and to bayplan: do they do the same?"""
