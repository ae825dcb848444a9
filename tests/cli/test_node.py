"""`bayplan node`: which cluster it finds. `test_up.py` has the rest."""

from __future__ import annotations

from pathlib import Path

import pytest

from bayplan.cli.up import _access

KUBECONFIG = """\
apiVersion: v1
kind: Config
current-context: c
contexts: [{{name: c, context: {{cluster: c, user: u}}}}]
clusters: [{{name: c, cluster: {{server: "http://{server}"}}}}]
users: [{{name: u, user: {{}}}}]
"""


@pytest.mark.parametrize(
    ("named", "variable", "expected"),
    [
        pytest.param("named", "variable", "named", id="the file that is named"),
        pytest.param("", "variable", "variable", id="then $KUBECONFIG"),
        pytest.param("", "", "here", id="then the file of bayplan up"),
    ],
)
def test_which_cluster(
    named: str, variable: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for file, server in (("named", "named"), ("variable", "variable"), ("bayplan.kubeconfig", "here")):
        (tmp_path / file).write_text(KUBECONFIG.format(server=server))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KUBECONFIG", variable)
    assert _access(named, "").server == f"http://{expected}"
