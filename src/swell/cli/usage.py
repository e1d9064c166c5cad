"""`swell usage`"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from swell.cli.options import output_option, say_if_nobody, with_client

if TYPE_CHECKING:
    from swell.client import Client

GROUPS = click.Choice(["user", "day", "user,day"])


@click.command("usage")
@click.option("--days", type=click.IntRange(1), metavar="N", help="The last N days, including today.  [default: 30]")
@click.option("--since", metavar="DATE", help="From this day on (UTC), for example 2026-11-16.")
@click.option("--by", type=GROUPS, default="user", show_default=True, help="Group by user, by day, or by both.")
@click.option("-u", "--user", metavar="USER", help="This user's usage instead of yours.")
@click.option("--all-users", is_flag=True, help="All users' usage.")
@output_option
@with_client
def command(
    client: Client, days: int | None, since: str | None, by: str, user: str | None, all_users: bool, output: str
) -> int:
    """Show GPU-hours and CPU-hours by user and day, including running jobs.

    Allocated resources count, busy or idle; a share of a GPU counts in proportion to its memory. Deleted jobs still
    count. The last line is the total of all users; only administrators see other users' lines. If logs and
    checkpoints are limited, a line below shows how much disk space they use; another shows how many of the starts that
    `swell why` and `swell ps -o wide` estimated came true.
    """
    from swell.cli.printing import print_document
    from swell.errors import Rejected

    found = client.usage(days=days, since=since, by=by, user=user, all_users=all_users)
    if found["since"] > found["until"]:
        raise Rejected(f"--since {since} is in the future: today is {found['until']} (UTC); name an earlier day")
    if output in ("json", "yaml"):
        print_document(found, output)
    else:
        _print(found, by, is_wide=output == "wide")
    if not found["usage"]:
        say_if_nobody(client, user, "used nothing in this period")
    return 0


def _print(found: dict[str, Any], by: str, *, is_wide: bool) -> None:
    from swell.cli.printing import print_table, visible

    names = by.split(",")
    total = found["total"]
    header = [*(name.upper() for name in names), "GPU-HOURS", "CPU-HOURS", "LOST GPU-HOURS", "ATTEMPTS"]
    rows = [[*(line[name] for name in names), *_numbers(line)] for line in found["usage"]]
    rows.append(["all users", *[""] * (len(names) - 1), *_numbers(total)])
    if is_wide:
        header.append("SHARE")
        for row, line in zip(rows, [*found["usage"], total], strict=True):
            row.append(_share(line, total))
    print_table(header, rows)
    print(f"(from {found['since']} to {found['until']}, UTC)")
    if (said := found.get("start_estimates")) and said["foreseen"]:  # a server of before says nothing of it
        print(_on_estimates(said))
    for line in found.get("disk", ()):  # a server of before says nothing of it
        print(visible(_on_disk(line)))


def _on_estimates(said: dict[str, int]) -> str:
    missed = f"{said['earlier']} earlier, {said['later']} later"
    return f"starts that were estimated: {said['foreseen']}; {said['within']} within the range, {missed}"


def _on_disk(line: dict[str, Any]) -> str:
    most = ", ".join(f"job {one['job']} {one['mib']:.1f} MiB" for one in line["largest"])
    held = f"{line['disk_mib']:.1f} of at most {line['disk_mib_max']} MiB"
    return f"{line['user']} has {held} of logs and checkpoints" + (f": {most}" if most else "")


def _numbers(line: dict[str, Any]) -> list[str]:
    hours = [f"{line[name]:.2f}" for name in ("gpu_hours", "cpu_hours", "lost_gpu_hours")]
    return [*hours, str(line["attempts"])]


def _share(line: dict[str, Any], total: dict[str, Any]) -> str:
    """The share of all GPU-hours; of all CPU-hours if there are no GPU-hours."""
    unit = "gpu_hours" if total["gpu_hours"] else "cpu_hours"
    return f"{line[unit] / total[unit]:.0%}" if total[unit] else "-"
