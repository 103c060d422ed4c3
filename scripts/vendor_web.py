"""Writes the third-party modules of the dashboard anew, from the packages that `vendor.json` names.

The dashboard has no build step: the modules are kept in the repository, as published, but for the names that
they import each other by: browsers need paths there. `vendor.json` names for each package its version, the
registry's checksum of the package, its licence, and for each file where it is in the package, the names to
replace, and the SHA-256 of the result. To take a newer version, change `version` and `integrity` there, run
this with `--write`, and read the diff; without `--write` it only compares.

    .venv/bin/python scripts/vendor_web.py [--write]

It needs npm. Tests compare files and checksums without it (`tests/unit/console`).
"""

from __future__ import annotations

import base64
import hashlib
import json
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

VENDOR = Path(__file__).parents[1] / "src" / "drivetrain" / "console" / "web" / "vendor"


def main() -> int:
    """Compare all files with their packages, and write them if asked; 1 if something differed."""
    write = "--write" in sys.argv[1:]
    index = VENDOR / "vendor.json"
    known = json.loads(index.read_text())
    differing = []
    for package in known["packages"]:
        with tempfile.TemporaryDirectory() as folder:
            contents = fetched(package, Path(folder))
        for file in package["files"]:
            data = adapted(contents[file["from"]], file.get("replace", {}))
            target = VENDOR / file["to"]
            if not target.exists() or target.read_bytes() != data:
                differing.append(file["to"])
                if write:
                    target.write_bytes(data)
            file["sha256"] = hashlib.sha256(data).hexdigest()
    if write:
        index.write_text(json.dumps(known, indent=2) + "\n")
    print(f"{'written' if write else 'differing'}: {', '.join(differing) or 'nothing'}")
    return 1 if differing and not write else 0


def fetched(package: dict[str, Any], folder: Path) -> dict[str, bytes]:
    """The files of a package by their paths, once its checksum is right."""
    wanted = f"{package['name']}@{package['version']}"
    subprocess.run(
        ["npm", "pack", "--silent", "--pack-destination", str(folder), wanted],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    archive = next(folder.glob("*.tgz"))
    algorithm, _, expected = package["integrity"].partition("-")
    found = base64.b64encode(hashlib.new(algorithm, archive.read_bytes()).digest()).decode()
    if found != expected:
        raise SystemExit(
            f"{wanted} has the checksum {algorithm}-{found}, and vendor.json names {package['integrity']}"
        )
    with tarfile.open(archive) as opened:
        members = [member for member in opened.getmembers() if member.isfile()]
        return {m.name.partition("/")[2]: opened.extractfile(m).read() for m in members}  # type: ignore[union-attr]


def adapted(data: bytes, replace: dict[str, str]) -> bytes:
    """A module with the names it imports replaced, and without the link to a source map that is not kept."""
    text = data.decode()
    for name, path in replace.items():
        if f'"{name}"' not in text:
            raise SystemExit(f"the module does not import {name}")
        text = text.replace(f'"{name}"', f'"{path}"')
    kept = [line for line in text.split("\n") if not line.startswith("//# sourceMappingURL")]
    return "\n".join(line.partition("//# sourceMappingURL")[0] for line in kept).encode()


if __name__ == "__main__":
    sys.exit(main())
