"""The arguments of the built-in plugins: their types, defaults and validation.

`base.py` is what every plugin's arguments derive from. The texts of validation errors are upstream's.
"""
