"""What fields objects have: `types.py` reads `fields.txt`, `custom.py` the schemas of custom resources."""
