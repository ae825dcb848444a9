"""The page of all flags, made from the table of flags: `python tests/docs/flags_page.py > docs/flags.md`."""

from __future__ import annotations

from bayplan.operating.command_line import default_shown
from bayplan.operating.flags import GROUPS, Flag

HEAD = """# Flags of `bayplan run`

A command line that starts kube-scheduler v1.36 starts bayplan: the flags, their precedence, the errors and
the exit statuses are the same. `--plugin` is our own. This is what `bayplan run --help` shows.

- `--name value` and `--name=value` are the same; a flag that is true or false takes its value only after `=`
  (`--leader-elect=false`). `_` in a name is as good as `-`.
- **With `--config`** the file counts, and of the flags that say the same only `--leader-elect…` beat it.
  `--kubeconfig`, `--kube-api-…` and `--profiling` are then ignored: say it in `clientConnection` and
  `enableProfiling`. `--master` and `--pod-max-in-unschedulable-pods-duration` always count.
- **Exit status**: 0 after SIGTERM or SIGINT with leader election (also on a standby); 1 without, as
  kube-scheduler, or after anything else: wrong flags, a wrong configuration, a lost lease. A second signal
  ends it at once.
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
