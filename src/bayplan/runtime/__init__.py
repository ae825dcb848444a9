"""The framework at work: filtering, scoring, and what is cached between pods.

`framework.py` is the way in. The contract with plugins (what they implement, what they may answer) is in
`bayplan.framework`; nothing there imports this package.
"""
