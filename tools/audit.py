"""Looks for known vulnerabilities of pinned packages with pip-audit.

pip-audit ends with success when it could not find out about a package. Here nothing counts as audited that
was not: without the data this says NOT AUDITED and ends with 0; with 1 it ends when something was found.
"""

from __future__ import annotations

import json
import subprocess
import sys

COMMAND = (sys.executable, "-m", "pip_audit", "--format=json", "--progress-spinner=off", "--require-hashes")


def audit(path: str) -> bool:
    """Whether nothing was found."""
    command = [*COMMAND, "--disable-pip", "-r", path]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        packages = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError, TypeError):
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        print(f"{path}: NOT AUDITED: the data on vulnerabilities cannot be reached: {last}")
        return True
    skipped = [package["name"] for package in packages if "skip_reason" in package]
    found = [(package, each) for package in packages for each in package.get("vulns", ())]
    for package, each in found:
        fixed = ", ".join(each["fix_versions"]) or "no version"
        print(f"{path}: {package['name']} {package['version']}: {each['id']}, fixed in {fixed}")
    if len(skipped) == len(packages):
        print(f"{path}: NOT AUDITED: the data on vulnerabilities cannot be reached")
    elif skipped:
        print(f"{path}: not audited, because nothing is known about them: {', '.join(skipped)}")
    if len(skipped) < len(packages) and not found:
        print(f"{path}: no known vulnerabilities in {len(packages) - len(skipped)} packages")
    return not found


if __name__ == "__main__":
    results = [audit(path) for path in sys.argv[1:]]
    raise SystemExit(not all(results))
