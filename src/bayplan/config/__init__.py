"""The scheduler's configuration: profiles, their plugins and arguments, extenders, leader election.

The way of a file through this package:

    document.py      text → values that know their lines
    decoding.py      values → typed records
    own_settings.py  bayplan's own settings, a document beside kube-scheduler's
    defaults.py      what the file leaves out
    validation.py    do the values make sense
    library.py       plugins that come with bayplan and are off by default
    catalog.py       which plugins a configuration may name
    expansion.py     which plugins run where
    build.py         what each profile runs: `ProfilePlan`
    output.py        and back to a file, complete

`load.py` is the first half, `build.py` the second. Consumers need only what is exported here.
"""

from bayplan.config.build import ProfilePlan, build_profiles
from bayplan.config.catalog import PluginCatalog, PluginEntry, TableCatalog, builtin_catalog, default_catalog
from bayplan.config.extenders import apply_extenders
from bayplan.config.features import parse_feature_gates
from bayplan.config.library import LIBRARY, LibraryPlugin
from bayplan.config.load import default_config, load_config, load_own_settings, parse_config
from bayplan.config.model import (
    BayplanConfiguration,
    Extender,
    KubeSchedulerConfiguration,
    LeaderElection,
    Profile,
)
from bayplan.config.output import completed, to_yaml
from bayplan.config.own_settings import OwnFlags, own_wire
from bayplan.config.validation import validate

__all__ = [
    "LIBRARY",
    "BayplanConfiguration",
    "Extender",
    "KubeSchedulerConfiguration",
    "LeaderElection",
    "LibraryPlugin",
    "OwnFlags",
    "PluginCatalog",
    "PluginEntry",
    "Profile",
    "ProfilePlan",
    "TableCatalog",
    "apply_extenders",
    "build_profiles",
    "builtin_catalog",
    "completed",
    "default_catalog",
    "default_config",
    "load_config",
    "load_own_settings",
    "own_wire",
    "parse_config",
    "parse_feature_gates",
    "to_yaml",
    "validate",
]
