"""The page of all flags, made from the table of flags: `python tests/docs/flags_page.py > docs/flags.md`."""

from __future__ import annotations

from bayplan.process.command_line import default_shown
from bayplan.process.flags import GROUPS, Flag

HEAD = """# Flags of `bayplan run`

`bayplan run` accepts the command lines of kube-scheduler v1.36 and v1.37: flags, their precedence,
errors and exit statuses are the same. `--plugin` and the settings of bayplan exist only in bayplan. This
page shows the output of `bayplan run --help`.

- `--name value` and `--name=value` are equivalent. A boolean flag accepts its value only after `=`
  (`--leader-elect=false`). `_` in a name is equivalent to `-`.
- **With `--config`**, the file has precedence over flags, except `--leader-elect…`. `--kubeconfig` is used if
  the file has no `clientConnection.kubeconfig`; `--kube-api-…` and `--profiling` are ignored: use
  `clientConnection` and `enableProfiling` in the file.
  `--master` and `--pod-max-in-unschedulable-pods-duration` always apply.
- **Exit status**: 0 after SIGTERM or SIGINT with leader election, also on a standby. 1 after these signals
  without leader election, as in kube-scheduler, and after errors: invalid flags, an invalid configuration, a
  lost lease. A second signal ends the process at once.
"""


def flags_page() -> str:
    lines = [HEAD]
    for title, flags in GROUPS.items():
        lines += [f"## {title}", "", "| flag | |", "|---|---|"]
        lines += [_row(flag) for flag in flags]
        lines.append("")
    return "\n".join(lines)


def _row(flag: Flag) -> str:
    name = f"`-{flag.letter}`, `--{flag.name}`" if flag.letter else f"`--{flag.name}`"
    if flag.kind.metavar and flag.kind.bare is None:
        name = f"{name} {flag.kind.metavar}"
    return f"| {name} | {flag.help}{default_shown(flag)} |"


if __name__ == "__main__":
    print(flags_page(), end="")
