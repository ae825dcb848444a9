"""`cases.json` and others: requests with kube-apiserver's responses, and reasons for our differences.

The requests of a file build on each other: all are sent to one server, to a namespace of their own.
`make test` sends them to the embedded server, `make conformance` to the real one. Recording again after
changing requests:

    python -m conformance.api.cases https://127.0.0.1:6443 TOKEN [1.36|1.37] [--gates]

With `--gates`, the files whose requests need feature gates (`server_options`).
"""

from __future__ import annotations

import copy
import http.client
import json
import re
import ssl
import sys
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

PATH: Final = Path(__file__).with_name("cases.json")
DEVICES: Final = Path(__file__).with_name("devices.json")
TAINT_RULES: Final = Path(__file__).with_name("taint-rules.json")
CHANGES: Final = Path(__file__).with_name("cases-1.37.json")
"""What v1.37 answers differently."""
POD_GROUPS: Final = Path(__file__).with_name("pod-groups.json")
RELEASES: Final = {
    PATH: "1.36", DEVICES: "1.36", TAINT_RULES: "1.37", CHANGES: "1.37", POD_GROUPS: "1.37"
}  # fmt: skip
"""The release of Kubernetes whose answers each file has."""
GATES: Final = {
    POD_GROUPS: (
        "GenericWorkload",
        "TopologyAwareWorkloadScheduling",
        "PodGroupPreemptionPolicy",
        "CompositePodGroup",
        "DRAWorkloadResourceClaims",
    )
}
"""The feature gates that are on, for files that need any; the server has to serve their API versions, too."""


def server_options(path: Path) -> list[str]:
    """Options of kube-apiserver for the requests of a file."""
    if path not in GATES:
        return []
    gates = ",".join(f"{gate}=true" for gate in GATES[path])
    versions = ",".join(f"scheduling.k8s.io/{version}=true" for version in ("v1beta1", "v1alpha3"))
    return ["--feature-gates", gates, "--runtime-config", versions]


_VOLATILE: Final = ("uid", "resourceVersion", "creationTimestamp", "managedFields")
_UID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_TIME: Final = re.compile(r'"20[2-9]\d-\d\d-\d\dT[^"]*Z"')

Case = dict[str, Any]


def load(path: Path = PATH) -> list[Case]:
    cases: list[Case] = json.loads(path.read_text(encoding="utf-8"))
    return cases


def headers_of(case: Case) -> dict[str, str]:
    headers = {"Accept": case.get("accept", "application/json"), "User-Agent": "cases"}
    return {**headers, "Content-Type": case["contentType"]} if "contentType" in case else headers


def body_of(case: Case) -> bytes | None:
    if "text" in case:
        return str(case["text"]).encode()
    return json.dumps(case["body"]).encode() if "body" in case else None


def comparable(status: int, body: Any) -> dict[str, Any]:
    """The part that has to be equal: code and reason, message and causes of an error, and the fields of an
    object.

    Of a table only the columns count. Uids, versions, times and managers differ from run to run. A null in
    place of an unknown time is ignored.
    """
    if not isinstance(body, dict):
        return {"status": status}
    if body.get("kind") == "Table":
        compared = ("name", "type", "format", "priority")
        columns = [{key: column[key] for key in compared} for column in body["columnDefinitions"]]
        return {"status": status, "columns": columns}
    plain: dict[str, Any]
    if body.get("kind") == "Status":
        kept = {key: body[key] for key in ("reason", "message", "details") if key in body}
        plain = {"status": status, **kept}
    else:
        plain = {"status": status, "object": copy.deepcopy(body)}
        for key in _VOLATILE:
            plain["object"].get("metadata", {}).pop(key, None)
    text = _TIME.sub('"TIME"', _UID.sub("UID", json.dumps(plain)))
    result: dict[str, Any] = _without_nulls(json.loads(text))
    return result


def _without_nulls(content: Any) -> Any:
    if isinstance(content, dict):
        return {key: _without_nulls(part) for key, part in content.items() if part is not None}
    return [_without_nulls(part) for part in content] if isinstance(content, list) else content


def send(connection: http.client.HTTPSConnection, token: str, case: Case) -> dict[str, Any]:
    """The answer of a server, made comparable."""
    headers = {"Authorization": f"Bearer {token}", **headers_of(case)}
    connection.request(case["method"], case["path"], body=body_of(case), headers=headers)
    response = connection.getresponse()
    text = response.read()
    is_json = response.headers.get("Content-Type", "").startswith("application/json")
    return comparable(response.status, json.loads(text) if is_json else text.decode())


def main() -> None:
    url, token = urlsplit(sys.argv[1]), sys.argv[2]
    # A server that makes its own certificate, on loopback: there is no CA to check it with.
    context = ssl._create_unverified_context()
    connection = http.client.HTTPSConnection(url.hostname or "", url.port, context=context)
    release = sys.argv[3] if len(sys.argv) > 3 else "1.36"
    files = [path for path, recorded_with in RELEASES.items() if recorded_with == release]
    gated = "--gates" in sys.argv
    for path in (path for path in files if (path in GATES) == gated):
        recorded = [{**case, "answer": send(connection, token, case)} for case in load(path)]
        lines = ",\n".join(json.dumps(case, ensure_ascii=False) for case in recorded)
        path.write_text(f"[\n{lines}\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main()
