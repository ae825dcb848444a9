"""The scheduler's configuration: profiles, their plugins and arguments, extenders, leader election.

The way of a file through this package:

    decoding.py    text → values that know their lines → typed records
    defaults.py    fills in what the file leaves out
    model.py       the complete configuration
    features.py    feature gates
    validation.py  checks values
    catalog.py     which plugins a configuration may name
    build.py       which plugins each profile runs where: `ProfilePlan`
    output.py      and back to a file, complete

`load.py` is the first half, `build.py` the second. Consumers need only what is exported here.
"""

from bayplan.config.build import ProfilePlan, build_profiles
from bayplan.config.catalog import (
    LIBRARY,
    LibraryPlugin,
    PluginCatalog,
    PluginEntry,
    TableCatalog,
    builtin_catalog,
    default_catalog,
)
from bayplan.config.features import parse_feature_gates
from bayplan.config.load import (
    OwnFlags,
    default_config,
    load_config,
    load_own_settings,
    parse_config,
)
from bayplan.config.model import (
    BayplanConfiguration,
    Decision,
    DescheduleConfiguration,
    Extender,
    KubeSchedulerConfiguration,
    LeaderElection,
    Mode,
    Profile,
    QueueDialect,
    QueuesConfiguration,
    ReadQueues,
)
from bayplan.config.output import completed, own_wire, to_yaml
from bayplan.config.validation import apply_extenders, validate

__all__ = [
    "LIBRARY",
    "BayplanConfiguration",
    "Decision",
    "DescheduleConfiguration",
    "Extender",
    "KubeSchedulerConfiguration",
    "LeaderElection",
    "LibraryPlugin",
    "Mode",
    "OwnFlags",
    "PluginCatalog",
    "PluginEntry",
    "Profile",
    "ProfilePlan",
    "QueueDialect",
    "QueuesConfiguration",
    "ReadQueues",
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
