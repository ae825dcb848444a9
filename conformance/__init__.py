"""bayplan held against the real thing: see docs/conformance.md."""
