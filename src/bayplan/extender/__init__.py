"""The HTTP extender protocol: webhooks that filter, prioritize, preempt and bind.

A scheduling cycle yields a request (`steps.py`) and is resumed with the answer of `ExtenderChain.answer`:

    steps → chain → extender → wire → client → HTTP

Each part imports only those to its right.
"""
