"""A scheduler-estimator for Karmada, whose numbers are those of the members' schedulers.

wire.py      the messages of the protocol
live.py      a member cluster that is kept up to date by watches
answers.py   what is answered, and from what
server.py    the gRPC server (needs the extra `bayplan[fleet]`)
"""
