"""Runs a program as the Deployment's security context has it, without a container runtime.

    python confined.py SERVICE_ACCOUNT_DIR COMMAND...

In namespaces of its own: every file system is read-only, the user is 65532 and not root, there are no
capabilities and no way to gain any. The files of a service account are where a kubelet mounts them. Where the
system does not allow this (user namespaces switched off), it exits with `UNAVAILABLE` and the reason.
"""

from __future__ import annotations

import ctypes
import os
import sys
import tempfile
from pathlib import Path
from typing import Final

USER: Final = 65532
UNAVAILABLE: Final = 77
SERVICE_ACCOUNT: Final = Path("/run/secrets/kubernetes.io/serviceaccount")
"""/var/run is a link to /run."""

_CLONE_NEWNS, _CLONE_NEWUSER = 0x00020000, 0x10000000
_MS_REC, _MS_PRIVATE = 0x4000, 0x40000
_SYS_MOUNT_SETATTR: Final = 442
"""The same number on every architecture."""
_AT_FDCWD, _AT_RECURSIVE, _MOUNT_ATTR_RDONLY = -100, 0x8000, 1
_PR_SET_NO_NEW_PRIVS: Final = 38

_libc = ctypes.CDLL(None, use_errno=True)


class _MountAttributes(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("attr_set", "attr_clr", "propagation", "userns_fd")]


def _call(what: str, result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def confine(service_account: Path) -> None:
    """Puts this process into its namespaces; what it executes next has no capabilities."""
    outside_user, outside_group = os.geteuid(), os.getegid()
    files = {file.name: file.read_bytes() for file in service_account.iterdir()}
    _call("unshare", _libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNS))
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{USER} {outside_user} 1")
    Path("/proc/self/gid_map").write_text(f"{USER} {outside_group} 1")
    _call("mount /", _libc.mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE, None))
    _call("mount /run", _libc.mount(b"tmpfs", b"/run", b"tmpfs", 0, b"mode=0755"))
    SERVICE_ACCOUNT.mkdir(parents=True)
    for name, content in files.items():
        (SERVICE_ACCOUNT / name).write_bytes(content)
    read_only = _MountAttributes(attr_set=_MOUNT_ATTR_RDONLY)
    _call(
        "mount_setattr",
        _libc.syscall(
            _SYS_MOUNT_SETATTR,
            _AT_FDCWD,
            b"/",
            _AT_RECURSIVE,
            ctypes.byref(read_only),
            ctypes.c_size_t(ctypes.sizeof(read_only)),
        ),
    )
    _call("prctl", _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))


def main() -> None:
    if sys.platform != "linux":
        print("confinement needs Linux", file=sys.stderr)
        raise SystemExit(UNAVAILABLE)
    try:
        confine(Path(sys.argv[1]))
    except OSError as error:
        print(f"no confinement on this system: {error.strerror or error}", file=sys.stderr)
        raise SystemExit(UNAVAILABLE) from None
    try:
        tempfile.gettempdir()
    except FileNotFoundError:
        os.execv(sys.argv[2], sys.argv[2:])
    raise SystemExit("there is a directory that can be written to")


if __name__ == "__main__":
    main()
