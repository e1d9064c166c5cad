"""How an attempt is being stopped is a value of its own; until now a job's evidence said it, which is for people."""

import json
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"

OF_STOPPING = ("cause", "grace_s", "cancelled", "fails")  # the rest of the evidence belongs to the failure

job = sa.table("job", *map(sa.column, ("id", "state", "reason_code", "reason_evidence", "spec", "cancel_requested_by")))
attempt = sa.table("attempt", *map(sa.column, ("job_id", "ended_at", "stopping")))


def upgrade() -> None:
    op.add_column("attempt", sa.Column("stopping", sa.Text))
    connection = op.get_bind()
    for row in connection.execute(sa.select(job).where(job.c.state == "stopping")).all():
        document = json.dumps(_stopping(json.loads(row.reason_evidence), json.loads(row.spec)))
        is_open = (attempt.c.job_id == row.id) & attempt.c.ended_at.is_(None)
        connection.execute(sa.update(attempt).where(is_open).values(stopping=document))
    given_up = (job.c.state == "cancelled") & (job.c.reason_code == "Cancelled") & job.c.cancel_requested_by.is_(None)
    for row in connection.execute(sa.select(job).where(given_up)).all():
        by = json.loads(row.reason_evidence).get("by")
        connection.execute(sa.update(job).where(job.c.id == row.id).values(cancel_requested_by=by))


def _stopping(evidence: dict[str, Any], spec: dict[str, Any]) -> dict[str, Any]:
    code = evidence.get("fails")
    rest = {name: value for name, value in evidence.items() if name not in OF_STOPPING}
    return {
        "cause": evidence.get("cause", ""),
        "grace_s": evidence.get("grace_s", spec["grace_s"]),
        "cancelled_by": evidence.get("cancelled"),
        "failure": None if code is None else {"code": code, "evidence": rest},
    }


def downgrade() -> None:
    op.drop_column("attempt", "stopping")
