"""`PYTHONPATH=tests python -m box.hostile [--only TEXT] [--seconds N]`: the table of docs/security.md, as root.

Before and after are two runs of it on two versions.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from box.hostile.attacks import ATTACKS, flood
from box.hostile.private import ONLY_MEASURED, PRIVATE_ATTACKS, owner_feels
from box.hostile.stage import Felt, Stage
from box.hostile.worst import WORST
from box.machine import Machine
from server import Server


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="", help="attacks whose name holds this")
    parser.add_argument("--seconds", type=float, default=6.0, help="how long each goes on")
    options = parser.parse_args()
    attacks = [one for one in (*ATTACKS, *map(flood, WORST)) if options.only in one.name]
    print("| what was tried | the worst `swell ps` of the other user | middle |\n|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as beside, Machine() as machine, Server(Path(beside)) as bystander:
        stage = Stage(machine, bystander)
        stage.prepare()
        _print("nothing", stage.feel(options.seconds))
        for attack in attacks:
            _print(attack.name, attack.felt(stage, options.seconds))
    for private in [one for one in PRIVATE_ATTACKS | ONLY_MEASURED if options.only in one]:
        _print(f"a private server's owner: {private}", owner_feels(private, options.seconds))


def _print(name: str, felt: Felt) -> None:
    middle = "" if felt.problem else f"{felt.middle_s * 1000:.0f} ms"
    print(f"| {name} | {felt} | {middle} |", flush=True)


if __name__ == "__main__":
    main()
