"""`kubectl bayplan …`: the same commands as a kubectl plugin.

kubectl runs the executable `kubectl-bayplan` with the arguments after `bayplan`, in its own environment
(`$KUBECONFIG`). The commands read the cluster of kubectl's current context unless `-f`, `--kubeconfig` or
`--context` says otherwise, and take the namespace from the context.
"""

from __future__ import annotations

import sys

from bayplan.cli.main import main as run

PROGRAM = "kubectl bayplan"


def main() -> int:
    """Run the command line of `kubectl bayplan`."""
    return run(prog_name=PROGRAM)


if __name__ == "__main__":
    sys.exit(main())
