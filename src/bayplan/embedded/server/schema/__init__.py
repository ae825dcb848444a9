"""The fields of objects: `types.py` reads `fields.txt`, `custom.py` the schemas of custom resources."""
