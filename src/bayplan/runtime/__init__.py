"""The framework's runtime: filtering, scoring, and what is cached between pods.

Start with `framework.py`. The contract with plugins is in `bayplan.framework`, which does not import this
package.
"""
