"""`swell usage`"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from swell.cli.options import output_option, with_client

if TYPE_CHECKING:
    from swell.client import Client

GROUPS = click.Choice(["user", "day", "user,day"])


@click.command("usage")
@click.option("--days", type=click.IntRange(1), metavar="N", help="The last N days, today included.  [default: 30]")
@click.option("--since", metavar="DATE", help="From this day on (UTC), as in 2026-11-16.")
@click.option("--by", type=GROUPS, default="user", show_default=True, help="One line for each.")
@click.option("-u", "--user", metavar="USER", help="This user's lines instead of yours.")
@click.option("--all-users", is_flag=True, help="Everybody's lines.")
@output_option
@with_client
def command(
    client: Client, days: int | None, since: str | None, by: str, user: str | None, all_users: bool, output: str
) -> int:
    """GPU-hours and CPU-hours by user and day, with what runs now.

    What was held counts, busy or not; a share of a GPU counts by its part of the memory. Deleting jobs changes
    nothing here. The last line is the total of everybody; others' own lines are for admins. Where logs and checkpoints
    are limited, a line below says how much of the disk they take now.
    """
    from swell.cli.printing import print_document

    found = client.usage(days=days, since=since, by=by, user=user, all_users=all_users)
    if output in ("json", "yaml"):
        print_document(found, output)
    else:
        _print(found, by, is_wide=output == "wide")
    return 0


def _print(found: dict[str, Any], by: str, *, is_wide: bool) -> None:
    from swell.cli.printing import print_table

    names = by.split(",")
    total = found["total"]
    header = [*(name.upper() for name in names), "GPU-HOURS", "CPU-HOURS", "LOST GPU-HOURS", "ATTEMPTS"]
    rows = [[*(line[name] for name in names), *_numbers(line)] for line in found["usage"]]
    rows.append(["everybody", *[""] * (len(names) - 1), *_numbers(total)])
    if is_wide:
        header.append("SHARE")
        for row, line in zip(rows, [*found["usage"], total], strict=True):
            row.append(_share(line, total))
    print_table(header, rows)
    print(f"(from {found['since']} to {found['until']}, UTC)")
    for line in found.get("disk", ()):  # a server of before says nothing of it
        print(_on_disk(line))


def _on_disk(line: dict[str, Any]) -> str:
    most = ", ".join(f"job {one['job']} {one['mib']:.1f} MiB" for one in line["largest"])
    held = f"{line['disk_mib']:.1f} of at most {line['disk_mib_max']} MiB"
    return f"{line['user']} has {held} of logs and checkpoints" + (f": {most}" if most else "")


def _numbers(line: dict[str, Any]) -> list[str]:
    hours = [f"{line[name]:.2f}" for name in ("gpu_hours", "cpu_hours", "lost_gpu_hours")]
    return [*hours, str(line["attempts"])]


def _share(line: dict[str, Any], total: dict[str, Any]) -> str:
    """Of the GPU-hours; where there are none, of the CPU-hours."""
    unit = "gpu_hours" if total["gpu_hours"] else "cpu_hours"
    return f"{line[unit] / total[unit]:.0%}" if total[unit] else "-"
