"""`swell doctor`"""

from __future__ import annotations

from dataclasses import asdict

import click

from swell.cli.options import output_option, state_option

COLOURED = {"ok": "succeeded", "note": "held", "problem": "failed"}


@click.command("doctor")
@output_option
@state_option
def command(state: str | None, output: str) -> int:
    """Say which server is asked and why, and look at this machine: driver, GPUs and who uses them, MPS, containers,
    cgroups, clock, state folder, server. Of a server elsewhere: can it be reached, and who are you there?

    Starts a container, if this machine can, and removes it; changes nothing else and needs no server. Exits with 1
    when something will not work.
    """
    from swell.cli.printing import paint, print_document
    from swell.client.find import choose
    from swell.doctor import Level, examine

    findings = examine(choose(state))
    if output in ("json", "yaml"):
        print_document([{**asdict(finding), "level": str(finding.level)} for finding in findings], output)
    else:
        for finding in findings:
            level = paint(f"{finding.level:<8}", COLOURED[finding.level])
            print(f"{level}{finding.topic + ':':<16}{finding.text}")
            if finding.next:
                print(f"{'':<24}→ {finding.next}")
    return int(any(finding.level is Level.PROBLEM for finding in findings))
