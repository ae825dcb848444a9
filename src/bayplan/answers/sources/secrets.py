"""Removes secrets from what a support bundle contains besides API objects: configurations, pages of a
scheduler, and messages.

API objects are redacted by `redaction.py`, which replaces everything that is not known to be harmless. A
configuration is of little use after that, so here only this is removed:

- values of keys that look like secrets (`token`, `password`, `keyData`), annotations, and values of
  environment variables
- all texts in the arguments of plugins that are not part of bayplan
- in every text: credentials in URLs, bearer tokens, JSON Web Tokens, PEM blocks, `key=value` with such a key

Host names, paths, and names of profiles and plugins are kept. In messages of pods (`anonymous_message`) only
the words of the scheduler's own messages, numbers and names of resources are kept.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, Final

REMOVED: Final = "REDACTED"
UNKNOWN_WORD: Final = "…"

_NAMES: Final = (
    r"token|passw|passphrase|secret|credential|api[-_]?key|access[-_]?key|private[-_]?key|bearer"
    r"|authorization|cookie|signature"
)
_SECRET_KEY: Final = re.compile(rf"{_NAMES}|(?<!meta)data$", re.IGNORECASE)
_HARMLESS_KEY: Final = re.compile(r"(file|dir|directory|path|ttl|interval|seconds|webhook)s?$", re.IGNORECASE)
"""Ends of keys whose values are paths and durations: `tokenFile`, `tls-private-key-file`."""

_USER_INFO: Final = re.compile(r"([a-zA-Z][\w+.-]*://)[^/\s\"'<>]*@")
_PEM: Final = re.compile(r"-----BEGIN [^-]+-----.*?(?:-----END [^-]+-----|\Z)", re.DOTALL)
_WEB_TOKEN: Final = re.compile(r"\beyJ[\w-]{5,}\.[\w-]+(?:\.[\w-]*)?")
_BEARER: Final = re.compile(r"\b(bearer\s+)[\w.~+/=-]{6,}", re.IGNORECASE)
_HEADER: Final = re.compile(r"\b((?:proxy-)?authorization[\"']?\s*[:=]\s*).+", re.IGNORECASE)
_PAIR: Final = re.compile(
    rf"\b([\w.-]*?(?:{_NAMES}|(?<!meta)data\b)[\w.-]*)([\"']?\s*[=:]\s*)(\"[^\"]*\"|'[^']*'|[^\s\"',&;}}]+)",
    re.IGNORECASE,
)


def is_secret_key(key: str) -> bool:
    """Whether the value of such a key has to be removed."""
    return bool(_SECRET_KEY.search(key)) and not _HARMLESS_KEY.search(key)


def without_secrets(value: Any, key: str = "") -> Any:
    """Plain data, as JSON and YAML have it, without secrets. `key` is the one that the value has."""
    if key == "annotations":
        return {}
    if is_secret_key(key) and value not in (None, "", [], {}, False, True):
        return REMOVED
    if isinstance(value, Mapping):
        return {name: without_secrets(part, str(name)) for name, part in value.items()}
    if isinstance(value, list | tuple):
        if key == "env":
            return [_variable(part) for part in value]
        return [without_secrets(part) for part in value]
    return text_without_secrets(value) if isinstance(value, str) else value


def _variable(part: Any) -> Any:
    """An environment variable without its value."""
    return {"name": part["name"]} if isinstance(part, Mapping) and "name" in part else REMOVED


def configuration_without_secrets(wire: Mapping[str, Any], known_plugins: Collection[str]) -> Any:
    """A scheduler configuration as plain data, without secrets."""
    found = without_secrets(wire)
    for profile in found.get("profiles") or ():
        for entry in profile.get("pluginConfig") or ():
            if entry.get("name") not in known_plugins and "args" in entry:
                entry["args"] = _without_texts(entry["args"])
    return found


def _without_texts(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_texts(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_without_texts(part) for part in value]
    return REMOVED if isinstance(value, str) and value else value


def text_without_secrets(text: str) -> str:
    """A text without credentials, tokens and keys."""
    text = _PEM.sub(REMOVED, text)
    text = _USER_INFO.sub(rf"\1{REMOVED}@", text)
    text = _HEADER.sub(rf"\1{REMOVED}", text)
    text = _BEARER.sub(rf"\1{REMOVED}", text)
    text = _WEB_TOKEN.sub(REMOVED, text)
    return _PAIR.sub(_pair, text)


def _pair(found: re.Match[str]) -> str:
    return f"{found[1]}{found[2]}{REMOVED}" if is_secret_key(found[1]) else found[0]


# Messages of pods

_MESSAGES: Final = """
nodes are available: node(s) didn't match Pod's node affinity/selector, didn't match
scheduler-enforced node affinity, pod affinity rules, pod anti-affinity rules, existing pods
anti-affinity rules, pod topology spread constraints (missing required label), pod affinity terms
conflict, required features, the requested node name, didn't have free ports for the requested pod
ports. Insufficient. Too many pods. were unschedulable, exceed max volume count, CSI driver is not
installed on the node. waiting for scheduling gates. had untolerated taint(s), had no available
disk, had no available volume zone. PersistentVolumeClaim PersistentVolume persistentvolumeclaim
persistentvolume storageclass StorageClass ResourceClaim resourceclaim had no name, had no pv name.
resource claim is in the process of being allocated. request device class does not exist.
unsupported request type, unknown. not available on the node. cannot schedule extended resource
claim. not found. cannot allocate all claims. timed out trying to allocate devices. didn't match
PersistentVolume's node affinity, didn't find available persistent volumes to bind, did not have
enough free storage, unavailable due to one or more pvc(s) bound to non-existent pv(s). pod has
unbound immediate PersistentVolumeClaims. preemption: not eligible due to preemptionPolicy=Never,
due to a terminating pod on the nominated node. No preemption victims found for incoming pod.
Preemption is not helpful for scheduling. waiting for the preemption for this pod to be finished.
namespace queue quota would use more than the max min guaranteed of its. group gang minCount members
placement pods are waiting for other pods. still not schedulable. no new claims to deallocate. node
pod no nodes could fit exists error running plugin Filter PreFilter PostFilter Reserve Permit
PreBind Bind rejected by. it is being deleted was deleted
""".replace("/", " ").replace("=", " ")
_TOKEN: Final = re.compile(r"[^\s,:;()\[\]{}\"=/]+")
_KNOWN_WORDS: Final = frozenset(word.rstrip(".").lower() for word in _TOKEN.findall(_MESSAGES))
_NUMBER: Final = re.compile(r"\d+")


def anonymous_message(message: str, kept: Collection[str] = ()) -> str:
    """A message of the scheduler without names: an unknown word is replaced by `…`.

    Args:
        kept: names of resources, which are kept.
    """
    held: list[str] = []
    message = message.replace("\0", "")

    def hold(found: re.Match[str]) -> str:
        held.append(found[0])
        return f"\0{len(held) - 1}\0"

    if kept:
        names = "|".join(re.escape(name) for name in sorted(kept, key=len, reverse=True))
        message = re.sub(rf"(?<=Insufficient )(?:{names})(?=[\s,.]|$)", hold, message)
    words = _TOKEN.sub(_known_word, message)
    return re.sub("\0(\\d+)\0", lambda found: held[int(found[1])], words)


def _known_word(found: re.Match[str]) -> str:
    word = found[0]
    bare = word.rstrip(".")
    if "\0" in word or _NUMBER.fullmatch(bare) or bare.lower() in _KNOWN_WORDS:
        return word
    return UNKNOWN_WORD + word[len(bare) :]
