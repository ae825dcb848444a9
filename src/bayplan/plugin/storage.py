"""Volumes: claims, storage classes, CSI, and which volumes pods use."""

from bayplan.api.in_tree_volumes import (
    BETA_REGION,
    BETA_ZONE,
    REGION,
    ZONE,
    ZONE_DELIMITER,
    TranslationError,
    in_tree_plugin,
    migrated_affinity,
)
from bayplan.api.pod import (
    Volume,
)
from bayplan.api.storage import (
    BOUND_BY_CONTROLLER_ANNOTATION,
    MIGRATED_PLUGINS_ANNOTATION,
    READ_WRITE_ONCE_POD,
    SELECTED_NODE_ANNOTATION,
    STORAGE,
    WAIT_FOR_FIRST_CONSUMER,
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
    not_found,
    not_made_for,
)
from bayplan.framework.volume_binder import (
    BindsVolumes,
    VolumeBinder,
    VolumePlan,
)
from bayplan.state.assumed import (
    ASSUMED_KINDS,
    OutOfSyncError,
    assume_object,
    expected_claim,
    expected_volume,
    restore_object,
)
from bayplan.state.csi_nodes import (
    NO_LIMIT,
    CSINodes,
)
from bayplan.state.disks import (
    Disk,
    DiskUses,
    disks_clash,
    disks_of,
)
from bayplan.state.volume_ids import (
    InlineVolume,
    VolumeId,
    VolumeProblem,
    limited_volumes,
    wanted_volumes,
)
from bayplan.state.volume_matching import (
    claims_by_size,
    match_volumes,
)
from bayplan.state.volume_offers import (
    StorageRoom,
    VolumeOffers,
    rows_reached,
    volume_limit,
)
from bayplan.state.volumes import (
    NodeVolumes,
    VolumeUses,
)

__all__ = [
    "ASSUMED_KINDS",
    "BETA_REGION",
    "BETA_ZONE",
    "BOUND_BY_CONTROLLER_ANNOTATION",
    "MIGRATED_PLUGINS_ANNOTATION",
    "NO_LIMIT",
    "READ_WRITE_ONCE_POD",
    "REGION",
    "SELECTED_NODE_ANNOTATION",
    "STORAGE",
    "WAIT_FOR_FIRST_CONSUMER",
    "ZONE",
    "ZONE_DELIMITER",
    "BindsVolumes",
    "CSIDriver",
    "CSINode",
    "CSINodes",
    "CSIStorageCapacity",
    "Disk",
    "DiskUses",
    "InlineVolume",
    "NodeVolumes",
    "OutOfSyncError",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "StorageClass",
    "StorageRoom",
    "TranslationError",
    "Volume",
    "VolumeAttachment",
    "VolumeBinder",
    "VolumeId",
    "VolumeOffers",
    "VolumePlan",
    "VolumeProblem",
    "VolumeUses",
    "assume_object",
    "claims_by_size",
    "disks_clash",
    "disks_of",
    "expected_claim",
    "expected_volume",
    "in_tree_plugin",
    "limited_volumes",
    "match_volumes",
    "migrated_affinity",
    "not_found",
    "not_made_for",
    "restore_object",
    "rows_reached",
    "volume_limit",
    "wanted_volumes",
]
