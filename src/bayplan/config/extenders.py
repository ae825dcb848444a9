"""What extenders mean for the rest of the configuration, and whether one can be reached as configured.

Two things in the complete configuration depend on extenders: their time-out, and the resources that
NodeResourcesFit leaves to them. The protocol itself is in `bayplan.extender`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from bayplan.config.model import (
    Extender,
    ExtenderTLSConfig,
    KubeSchedulerConfiguration,
    PluginConfig,
    Profile,
)
from bayplan.errors import ConfigError
from bayplan.framework.plugin_args.args import NodeResourcesFitArgs
from bayplan.framework.plugin_args.duration import Duration

DEFAULT_TIMEOUT: Final = Duration.of(seconds=5)

_PEM: Final = b"-----BEGIN "


def apply_extenders(config: KubeSchedulerConfiguration) -> KubeSchedulerConfiguration:
    """The configuration with the effects of its extenders; it is idempotent.

    Raises:
        ConfigError: an extender's TLS settings cannot work.
    """
    for extender in config.extenders:
        try:
            _check_tls(extender)
        except ConfigError as error:
            raise ConfigError(f"couldn't build extenders: {error}") from None
    ignored = tuple(
        resource.name
        for extender in config.extenders
        for resource in extender.managed_resources
        if resource.ignored_by_scheduler
    )
    profiles = config.profiles
    if ignored:
        profiles = tuple(_ignoring(profile, ignored) for profile in profiles)
    return msgspec.structs.replace(
        config, extenders=tuple(map(_with_timeout, config.extenders)), profiles=profiles
    )


def _with_timeout(extender: Extender) -> Extender:
    return (
        extender if extender.http_timeout else msgspec.structs.replace(extender, http_timeout=DEFAULT_TIMEOUT)
    )


def _ignoring(profile: Profile, resources: tuple[str, ...]) -> Profile:
    """The profile with NodeResourcesFit ignoring these resources, instead of those in its arguments."""
    changed: list[PluginConfig] = []
    found = False
    for entry in profile.plugin_config:
        if not found and isinstance(entry.args, NodeResourcesFitArgs):
            found = True
            changed.append(
                PluginConfig(entry.name, msgspec.structs.replace(entry.args, ignored_resources=resources))
            )
        else:
            changed.append(entry)
    if not found:
        raise ConfigError("couldn't build extenders: can't find NodeResourcesFitArgs in plugin config")
    return msgspec.structs.replace(profile, plugin_config=tuple(changed))


def _check_tls(extender: Extender) -> None:
    tls = extender.tls_config or ExtenderTLSConfig()
    has_ca = bool(tls.ca_file or tls.ca_data)
    # HTTPS without any CA disables verification.
    insecure = tls.insecure or (extender.enable_https and not has_ca)
    has_certificate = bool(tls.cert_file or tls.cert_data) and bool(tls.key_file or tls.key_data)
    if not (has_ca or has_certificate or insecure or tls.server_name):
        return
    if has_ca and insecure:
        raise ConfigError("specifying a root certificates file with the insecure flag is not allowed")
    ca, certificate, key = (
        data or _file_content(path)
        for path, data in (
            (tls.ca_file, tls.ca_data),
            (tls.cert_file, tls.cert_data),
            (tls.key_file, tls.key_data),
        )
    )
    if has_ca and _PEM not in ca:
        raise ConfigError("unable to load root certificates: unable to parse bytes as PEM block")
    # Certificates from files are read again for every connection, and not checked here.
    if has_certificate and (tls.cert_data or tls.key_data):
        if _PEM not in certificate:
            raise ConfigError("tls: failed to find any PEM data in certificate input")
        if _PEM not in key:
            raise ConfigError("tls: failed to find any PEM data in key input")


def _file_content(path: str) -> bytes:
    if not path:
        return b""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"open {path}: {(error.strerror or 'failed').lower()}") from None
