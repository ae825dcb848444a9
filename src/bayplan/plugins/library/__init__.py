"""Plugins that the default profile does not contain; a configuration or `--plugin` names them."""
