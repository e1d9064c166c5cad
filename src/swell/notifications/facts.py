"""What is told of a job that has ended?

The same facts each way: as JSON, as variables, as a line for people. docs/notices.md lists them.
"""

from __future__ import annotations

import os
import shutil
from datetime import UTC, datetime
from email.message import EmailMessage

from swell.store import JobRecord

Fact = str | int | None


def facts(job: JobRecord) -> dict[str, Fact]:
    return {
        "job": job.id,
        "name": job.name,
        "user": job.owner,
        "state": str(job.state),
        "exit_code": job.exit_code,
        "reason": None if job.reason_code is None else str(job.reason_code),
        "ended_at": None if job.ended_at is None else datetime.fromtimestamp(job.ended_at, UTC).isoformat(),
    }


def payload(job: JobRecord) -> dict[str, Fact]:
    """What an address gets. `text` is what Slack, Mattermost and Google Chat show; they know none of the others."""
    return {**facts(job), "text": _escaped(summary(job))}


def variables(job: JobRecord) -> dict[str, str]:
    """What a command gets. Not SWELL_STATE: that names the state folder."""
    told = {name: "" if value is None else str(value) for name, value in facts(job).items()}
    names = {"job": "SWELL_JOB_ID", "state": "SWELL_JOB_STATE"}
    return {names.get(name, f"SWELL_{name.upper()}"): value for name, value in told.items()}


def summary(job: JobRecord) -> str:
    """'job 12 (resnet) of ann failed: TaskFailed, exit code 4'."""
    code = f"exit code {job.exit_code}" if job.exit_code else ""
    reason = "" if job.reason_code is None else str(job.reason_code)
    why = ", ".join(filter(None, (reason, code)))
    return printable(f"job {job.id} ({job.name}) of {job.owner} {job.state}" + (f": {why}" if why else ""))


def printable(text: str) -> str:
    """On one line, without anything that a terminal or a mail's head would obey."""
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())


def _escaped(text: str) -> str:
    """A chat reads `<!channel>` as a call for everybody."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


ALSO_HERE = "/usr/sbin:/usr/lib"  # where sendmail is, and where no PATH of a service may lead
VARIABLE = "SWELL_MESSAGE"
# The message comes as a variable: what is an argument, every user of the machine can read. `-i`: a line with only a dot
# is a line like any other. `-odi`: it ends when the message is queued or sent, and leaves nothing in the background.
SCRIPT = f'printf %s "${VARIABLE}" | "$0" -i -odi "$1"'


def find_sendmail() -> str | None:
    """None: this machine sends no mail."""
    return shutil.which("sendmail", path=f"{os.environ.get('PATH', os.defpath)}:{ALSO_HERE}")


def mail_command(program: str, recipient: str) -> tuple[str, ...]:
    return ("/bin/sh", "-c", SCRIPT, program, recipient)


def message(job: JobRecord, recipient: str) -> str:
    made = EmailMessage()
    made["To"] = recipient
    made["Subject"] = f"[swell] {summary(job)}"
    made["Auto-Submitted"] = "auto-generated"  # so that nobody's absence is answered
    lines = [f"{name}: {value}" for name, value in facts(job).items() if value is not None]
    made.set_content("\n".join([summary(job), "", *lines, "", f"swell show {job.id}", f"swell logs {job.id}"]))
    return made.as_string()
