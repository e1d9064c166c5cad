"""How is use written down, and read back?"""

from __future__ import annotations

from dataclasses import asdict

from sqlalchemy import Connection, func, select

from swell.model.usage import Account, DayOfUse, Used
from swell.store import tables
from swell.store.kept import upsert

SUMS = ("gpu_s", "cpu_s", "lost_gpu_s", "attempts")


def add_usage(connection: Connection, usage: dict[tuple[str, str], Used]) -> None:
    rows = [{"owner": owner, "day": day, **asdict(used)} for (owner, day), used in usage.items()]
    upsert(connection, tables.usage, rows, is_added=True)


def read_usage(connection: Connection, since: str) -> list[DayOfUse]:
    """What each owner used on each day, sorted by day, then owner."""
    days = select(tables.usage).where(tables.usage.c.day >= since).order_by(tables.usage.c.day, tables.usage.c.owner)
    return [
        DayOfUse(row.owner, row.day, Used(*(row._mapping[name] for name in SUMS))) for row in connection.execute(days)
    ]


def read_totals(connection: Connection) -> dict[str, Used]:
    """What each owner has used since the beginning."""
    sums = [func.sum(tables.usage.c[name]) for name in SUMS]
    rows = connection.execute(select(tables.usage.c.owner, *sums).group_by(tables.usage.c.owner))
    return {owner: Used(*used) for owner, *used in rows}


def write_accounts(connection: Connection, accounts: dict[str, Account]) -> None:
    upsert(connection, tables.account, [{"owner": owner, **asdict(account)} for owner, account in accounts.items()])


def read_accounts(connection: Connection) -> dict[str, Account]:
    return {row.owner: Account(row.gpu_s, row.at) for row in connection.execute(select(tables.account))}
