"""bayplan: a Kubernetes scheduler whose plugins are ordinary Python classes."""

__version__ = "0.1.0"
