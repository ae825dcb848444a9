"""Writes `embedded/server/schema/fields*.txt`: the fields of all kinds that the embedded server serves.

    python -m conformance.fields          writes the files
    python -m conformance.fields --check  compares, and reports whether they are up to date

A new kind needs an entry in `embedded/server/kinds.py` and a run of this. `fields.txt` has the facts of the
Kubernetes that `go.mod` pins, `fields-1.37.txt` what differs in that of `v1.37/go.mod`: types, required
fields and the keys of lists from its OpenAPI documents; numbers in protobuf, pointers, enumerations and merge
keys from its Go structs. Descriptions are not taken over.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from bayplan.api.releases import parse_release
from bayplan.embedded.server.http.discovery import REVIEWS
from bayplan.embedded.server.kinds import BUILT_IN, GATED, LATER, Resource
from conformance.harness.programs import DEFAULT_RELEASE, HERE, RELEASES, MissingError, module_directory

_DIRECTORY: Final = HERE.parent / "src/bayplan/embedded/server/schema"
FILES: Final = {
    release: _DIRECTORY / ("fields.txt" if release == DEFAULT_RELEASE else f"fields-{release}.txt")
    for release in RELEASES
}
NEWEST: Final = RELEASES[-1]
_META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1."
_DEFINITIONS: Final = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1."
_SCHEMA: Final = f"{_DEFINITIONS}JSONSchemaProps"
"""In JSON it is any value, because its own validation says more about it; its fields are for protobuf."""
_MORE: Final = (
    "io.k8s.api.authentication.v1.TokenRequest",
    "io.k8s.api.core.v1.Binding",
    "io.k8s.api.policy.v1.Eviction",
    "io.k8s.api.autoscaling.v1.Scale",
    f"{_META}DeleteOptions",
    f"{_META}ListMeta",
    _SCHEMA,
)
"""What is sent and answered beside the resources themselves."""
_SCALARS: Final = {
    "io.k8s.apimachinery.pkg.api.resource.Quantity": "quantity",
    "io.k8s.apimachinery.pkg.runtime.RawExtension": "any",
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": "int-or-string",
    _SCHEMA: "schema",
    f"{_DEFINITIONS}JSON": "any",
    f"{_SCHEMA}OrArray": "schema-or-array",
    f"{_SCHEMA}OrBool": "schema-or-bool",
    f"{_SCHEMA}OrStringArray": "schema-or-strings",
    f"{_META}FieldsV1": "any",
    f"{_META}MicroTime": "microtime",
    f"{_META}Time": "time",
}
_FORMATS: Final = {"int32": "int32", "int64": "int64", "byte": "bytes", "double": "number"}
_GO_FIELD: Final = re.compile(
    r"^\t(?:(?P<name>\w+)\s+)?(?P<type>[\w.*\[\]]+)\s+`(?P<tags>[^`]*)`", re.MULTILINE
)
_GO_ENUM: Final = re.compile(r"^// \+enum\n(?://.*\n)*type (\w+) string", re.MULTILINE)
_GO_STRUCT: Final = re.compile(r"^type (\w+) struct \{\n(.*?)^\}", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class GoField:
    """A field of a Go struct."""

    number: str = ""
    """The path of numbers that leads to it in protobuf; empty if it has none."""
    is_pointer: bool = False
    merges: bool = False
    merge_key: str = ""
    choices: tuple[str, ...] = ()
    """What an enumeration allows; the published documents have no enumerations."""
    retains_keys: bool = False


def main() -> int:
    differing = 0
    for release, file in FILES.items():
        try:
            text = _head(release) + fields_text(release)
        except MissingError as error:
            print(error, file=sys.stderr)
            return 1
        if "--check" not in sys.argv[1:]:
            file.write_text(text, encoding="utf-8")
        elif text == file.read_text(encoding="utf-8"):
            print(f"{file.name} is up to date")
        else:
            print(f"{file.name} differs: python -m conformance.fields")
            differing = 1
    return differing


def fields_text(release: str) -> str:
    """All types of the default release by name; of a later release those that differ from them."""
    blocks = _blocks(release)
    if release != DEFAULT_RELEASE:
        known = _blocks(DEFAULT_RELEASE)
        blocks = {name: block for name, block in blocks.items() if block != known.get(name)}
    return "\n".join(blocks[name] for name in sorted(blocks))


@cache
def _blocks(release: str) -> dict[str, str]:
    schemas = _schemas(release)
    new_kinds = parse_release(release).new_kinds
    later = [resource for resource in LATER if resource.kind in new_kinds]
    if release == NEWEST:
        later += [resource for resource in GATED if resource.stored_as is None]
    kinds = (*BUILT_IN, *later, *REVIEWS.values())
    reached = _reached(schemas, [*(_schema_of(schemas, resource) for resource in kinds), *_MORE])
    names = _names(reached)
    return {names[key]: _block(release, names[key], key, schemas, names) for key in reached}


def _head(release: str) -> str:
    """The comment at the top of a file; that of the default release describes the format."""
    if release != DEFAULT_RELEASE:
        return f"# What differs from fields.txt in Kubernetes v{release}.\n\n"
    lines = FILES[release].read_text(encoding="utf-8").splitlines(keepends=True)
    return "".join(line for line in lines if line.startswith("#")) + "\n"


@cache
def _module(release: str, path: str) -> Path:
    """Where Go keeps the source of a module."""
    command = ["go", "list", "-m", "-f", "{{.Dir}}", path]
    try:
        ended = subprocess.run(
            command, cwd=module_directory(release), check=True, capture_output=True, text=True
        )
    except (FileNotFoundError, subprocess.CalledProcessError) as error:
        raise MissingError(f"Go cannot find {path}") from error
    found = ended.stdout.strip()
    if not found:
        raise MissingError(f"{path} is not downloaded: go mod download")
    return Path(found)


def _schemas(release: str) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    documents = _module(release, "k8s.io/kubernetes") / "api/openapi-spec/v3"
    for file in sorted(documents.glob("api*_openapi.json")):
        found.update(json.loads(file.read_text(encoding="utf-8")).get("components", {}).get("schemas", {}))
    return found


def _schema_of(schemas: dict[str, dict[str, Any]], resource: Resource) -> str:
    wanted = {"group": resource.group, "kind": resource.kind, "version": resource.version}
    found = [
        key
        for key, schema in schemas.items()
        if wanted in schema.get("x-kubernetes-group-version-kind", ()) and not key.startswith(_META)
    ]
    assert len(found) == 1, (resource, found)
    return found[0]


def _reached(schemas: dict[str, dict[str, Any]], roots: list[str]) -> list[str]:
    """The schemas of these kinds, and all that they refer to."""
    reached: dict[str, None] = {}
    waiting = list(roots)
    while waiting:
        key = waiting.pop()
        if key not in reached and (key not in _SCALARS or key in roots):
            reached[key] = None
            waiting += re.findall(r'"#/components/schemas/([^"]+)"', json.dumps(schemas[key]))
    return list(reached)


def _names(keys: list[str]) -> dict[str, str]:
    """A short name for each: with its group where another has the same; those of the core group go first."""
    names: dict[str, str] = {}
    for key in keys:
        *_, group, version, kind = key.split(".")
        rivals = {other for other in keys if other.rpartition(".")[2] == kind}
        same_group = {other for other in rivals if other.split(".")[-3] == group}
        if len(rivals) == 1 or group in ("core", "meta"):
            names[key] = kind
        elif len(same_group) == 1:
            names[key] = f"{group}.{kind}"
        else:
            names[key] = f"{group}.{version}.{kind}"
    return names


def _block(
    release: str, name: str, key: str, schemas: dict[str, dict[str, Any]], names: dict[str, str]
) -> str:
    schema = schemas[key]
    is_atomic = schema.get("x-kubernetes-map-type") == "atomic"
    lines = [f"{name} atomic" if is_atomic else name]
    go = _go_fields(release, key)
    required = schema.get("required", ())
    for field, of in sorted(schema.get("properties", {}).items()):
        lines.append("  " + " ".join(_words(field, of, go.get(field, GoField()), field in required, names)))
    return "\n".join(lines) + "\n"


def _words(
    field: str, of: dict[str, Any], go: GoField, required: bool, names: dict[str, str]
) -> Iterator[str]:
    yield field
    kind = _type(of, names)
    yield kind.replace("string", f"string({','.join(go.choices)})") if go.choices else kind
    if go.number:
        yield f"#{go.number}"
    if go.is_pointer:
        yield "optional"
    if of.get("x-kubernetes-list-type") == "map":
        yield "keys=" + ",".join(of["x-kubernetes-list-map-keys"])
    if of.get("x-kubernetes-list-type") == "set":
        yield "set"
    if go.merges:
        yield f"merge={go.merge_key}" if go.merge_key else "merge"
    if go.retains_keys:
        yield "retain"
    if of.get("x-kubernetes-map-type") == "atomic":
        yield "atomic"
    if required:
        yield "required"


def _type(of: dict[str, Any], names: dict[str, str]) -> str:
    reference = of.get("$ref") or next((part["$ref"] for part in of.get("allOf", ()) if "$ref" in part), "")
    if reference:
        key = reference.rpartition("/")[2]
        return _SCALARS.get(key) or names[key]
    if of.get("type") == "array":
        return f"[{_type(of['items'], names)}]"
    if of.get("type") == "object":
        return f"{{{_type(of['additionalProperties'], names)}}}" if "additionalProperties" in of else "any"
    return _FORMATS.get(of.get("format", "")) or of.get("type", "any")


@cache
def _go_structs(package: Path) -> dict[str, str]:
    """The bodies of a package's structs by name."""
    found: dict[str, str] = {}
    for file in sorted(package.glob("*types*.go")):
        found.update(_GO_STRUCT.findall(file.read_text(encoding="utf-8")))
    return found


@cache
def _go_enums(package: Path) -> dict[str, tuple[str, ...]]:
    """The enumerations of a package by the name of their type."""
    text = "\n".join(file.read_text(encoding="utf-8") for file in sorted(package.glob("*types*.go")))
    found = {}
    for name in _GO_ENUM.findall(text):
        pattern = rf'^\s+(?:const )?\w+\s+(?:{name}\s+=\s+"([^"]*)"|=\s+{name}\("([^"]*)"\))'
        choices = {first or second for first, second in re.findall(pattern, text, re.MULTILINE)}
        # Where the empty string is a choice too, a plain string means the same.
        found[name] = () if "" in choices else tuple(sorted(choices))
    return found


def _choices(core: Path, package: Path, go_type: str) -> tuple[str, ...]:
    """The choices of a field whose Go type is an enumeration, or a list or map of one."""
    qualifier, _, name = re.sub(r"^.*[\]*]", "", go_type).rpartition(".")
    return _go_enums(core if qualifier else package).get(name, ())


def _package(release: str, key: str) -> Path:
    if key.startswith(_META):
        return _module(release, "k8s.io/apimachinery") / "pkg/apis/meta/v1"
    if key.startswith("io.k8s.kube-aggregator."):
        return _module(release, "k8s.io/kube-aggregator") / "pkg/apis/apiregistration/v1"
    if key.startswith(_DEFINITIONS):
        return _module(release, "k8s.io/apiextensions-apiserver") / "pkg/apis/apiextensions/v1"
    *_, group, version, _ = key.split(".")
    return _module(release, "k8s.io/api") / group / version


def _go_fields(release: str, key: str) -> dict[str, GoField]:
    """The fields of a schema's Go struct by their names in JSON."""
    core = _module(release, "k8s.io/api") / "core/v1"
    return _fields_of(core, _package(release, key), key.rpartition(".")[2], "")


def _fields_of(core: Path, package: Path, struct: str, prefix: str) -> dict[str, GoField]:
    found: dict[str, GoField] = {}
    for match in _GO_FIELD.finditer(_go_structs(package).get(struct, "")):
        tags = dict(re.findall(r'(\w+):"([^"]*)"', match["tags"]))
        name = tags.get("json", "").partition(",")[0]
        number = tags["protobuf"].split(",")[1] if "protobuf" in tags else ""
        if not name and match["name"] is None:
            if number:
                embedded = match["type"].rpartition(".")[2]
                found.update(_fields_of(core, package, embedded, f"{prefix}{number}."))
            continue
        strategies = tags.get("patchStrategy", "").split(",")
        found[name] = GoField(
            f"{prefix}{number}" if number else "",
            is_pointer=match["type"].startswith("*"),
            merges="merge" in strategies,
            merge_key=tags.get("patchMergeKey", "") if "merge" in strategies else "",
            retains_keys="retainKeys" in strategies,
            choices=_choices(core, package, match["type"]),
        )
    return found


if __name__ == "__main__":
    sys.exit(main())
