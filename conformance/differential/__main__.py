"""Searches for a scenario in which bayplan and kube-scheduler differ."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import Collection
from pathlib import Path

from bayplan.answers.sources.files import VERSION
from bayplan.api.releases import parse_release
from bayplan.cli.replay import first_difference
from bayplan.simulate.replay import replay
from conformance.differential.drawing import Raw
from conformance.differential.group_playing import compare
from conformance.differential.groups import GATES, GroupScenario
from conformance.differential.playing import MAX_WAIT_SECONDS, record
from conformance.differential.scenarios import Scenario
from conformance.group_recorder import control_plane
from conformance.harness.admin import Admin
from conformance.harness.control_plane import ADMIN, ControlPlane
from conformance.harness.process import Process
from conformance.harness.programs import DEFAULT_RELEASE, RELEASES, MissingError, obtain

OPTIONS = ("--disable-admission-plugins", "StorageObjectInUseProtection")
"""For the API server: no controller removes finalizers here, so deleted claims and volumes would stay."""

KINDS = (
    "Pod",
    "Node",
    "PersistentVolumeClaim",
    "PersistentVolume",
    "ResourceClaim",
    "ResourceSlice",
    "DeviceClass",
    "StorageClass",
    "PodDisruptionBudget",
    "ReplicaSet",
    "Service",
)


async def recorded(plane: ControlPlane, scenario: Raw) -> Raw:
    """The results of kube-scheduler for a scenario, on a cluster that is empty before and after."""
    config = {**scenario["config"], "clientConnection": {"kubeconfig": str(plane.kubeconfig(ADMIN))}}
    path = plane.directory / "scheduler.json"
    path.write_text(json.dumps(config))
    async with Admin(plane.access()) as admin:
        kinds = (*new_kinds(plane), *KINDS)
        await admin.clear(*kinds)
        for name, labels in scenario["namespaces"].items():
            item = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
            if await admin.find("Namespace", name) is None:
                await admin.create(item)
        command: list[str | Path] = [
            plane.programs.kube_scheduler,
            "--config",
            path,
            "--secure-port",
            "0",
            "-v",
            "2",
        ]
        with Process("kube-scheduler", command, plane.directory / "kube-scheduler.log"):
            await asyncio.sleep(2.0)
            try:
                run = await record(admin, scenario)
                return {**run, VERSION: plane.programs.release}
            finally:
                await admin.clear(*kinds)


def new_kinds(plane: ControlPlane) -> Collection[str]:
    """Kinds that the API server has and older ones have not."""
    return parse_release(plane.programs.release).new_kinds


def search_groups(options: argparse.Namespace) -> int:
    """The same with pod groups, which another API server and another form of runs are for."""
    different = steps = unsteady = undecided = 0
    with tempfile.TemporaryDirectory() as directory, control_plane(Path(directory)) as plane:
        for seed in range(options.first_seed, options.first_seed + options.scenarios):
            try:
                found = compare(plane, GroupScenario(seed, flavor=options.flavor).make())
            except TimeoutError as error:
                undecided += 1
                print(f"seed {seed}: {error}", flush=True)
                continue
            steps += sum(step["op"] == "settle" for step in found.run["steps"])
            if found.difference is None:
                continue
            print(f"seed {seed}, {found.run['name']}: {found.difference}", flush=True)
            if found.unsteady is not None:
                unsteady += 1
                print(f"  not repeatable: {found.unsteady}", flush=True)
                continue
            different += 1
            keep(options, seed, found.run)
    compared = options.scenarios - undecided - unsteady
    print(
        f"{compared} scenarios with groups, {steps} settle steps: {different} came out differently; "
        f"{unsteady} not repeatable, {undecided} not compared"
    )
    return 1 if different else 0


def keep(options: argparse.Namespace, seed: int, run: Raw) -> None:
    """Saves a run, if a folder was given."""
    if options.keep is not None:
        options.keep.mkdir(parents=True, exist_ok=True)
        (options.keep / f"{seed}.jsonl").write_text(json.dumps(run) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m conformance.differential", description=__doc__)
    parser.add_argument("--scenarios", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=90)
    parser.add_argument(
        "--devices", action=argparse.BooleanOptionalAction, help="only scenarios with devices, or none"
    )
    parser.add_argument("--groups", action="store_true", help="scenarios with pod groups, as Kubernetes 1.37")
    parser.add_argument(
        "--flavor", choices=sorted(GATES), default="", help="only these scenarios with groups"
    )
    parser.add_argument("--release", choices=RELEASES, default=DEFAULT_RELEASE, help="of Kubernetes")
    parser.add_argument("--keep", type=Path, help="folder for the runs that came out differently")
    options = parser.parse_args()
    try:
        if options.groups:
            return search_groups(options)
        programs = obtain(options.release)
    except MissingError as error:
        print(error)
        return 0
    different = pods = undecided = 0
    with (
        tempfile.TemporaryDirectory() as directory,
        ControlPlane(programs, Path(directory), options=OPTIONS) as plane,
    ):
        for seed in range(options.first_seed, options.first_seed + options.scenarios):
            scenario = Scenario(
                seed, steps=options.steps, devices=options.devices, new_kinds=new_kinds(plane)
            )
            try:
                run = asyncio.run(recorded(plane, scenario.make()))
            except TimeoutError:
                # As on a machine that is busy with something else.
                undecided += 1
                print(f"seed {seed}: kube-scheduler did not decide within {MAX_WAIT_SECONDS:g} s", flush=True)
                continue
            pods += sum(step["op"] == "schedule" for step in run["steps"])
            difference = first_difference(run, replay(run))
            if difference is None:
                continue
            different += 1
            print(f"seed {seed}: {difference}", flush=True)
            keep(options, seed, run)
    compared = options.scenarios - undecided
    print(f"{compared} scenarios, {pods} pods: {different} came out differently, {undecided} not compared")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
