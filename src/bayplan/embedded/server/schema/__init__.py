"""The fields of objects: `types.py` has them, and `protobuf.py` decodes them."""
