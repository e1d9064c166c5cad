"""`swell doctor`"""

from __future__ import annotations

from dataclasses import asdict

import click

from swell.cli.options import output_option, state_option

COLOURED = {"ok": "succeeded", "note": "held", "problem": "failed"}


@click.command("doctor")
@click.option("--containers", is_flag=True, help="Exit with 1 if no container can be started.")
@output_option
@state_option
def command(state: str | None, output: str, containers: bool) -> int:
    """Check this machine: the driver, GPUs and who uses them, MPS, containers, cgroups, the clock, the state folder
    and the server. Show which server your commands use, why, whether it can be reached and who you are there.

    The check needs no server. It starts and removes a container if this machine can run one, and changes nothing
    else. It exits with 1 if something will not work; containers count only with --containers, or if you have a job
    with an image.
    """
    from swell.cli.printing import paint, print_document, visible
    from swell.client.find import choose
    from swell.doctor import Level, examine

    findings = examine(choose(state), containers=containers)
    if output in ("json", "yaml"):
        print_document([{**asdict(finding), "level": str(finding.level)} for finding in findings], output)
    else:
        for finding in findings:
            level = paint(f"{finding.level:<8}", COLOURED[finding.level])
            print(f"{level}{finding.topic + ':':<16}{visible(finding.text)}")
            if finding.next:
                print(f"{'':<24}→ {visible(finding.next)}")
    return int(any(finding.level is Level.PROBLEM for finding in findings))
