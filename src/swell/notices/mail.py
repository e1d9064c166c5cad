"""How does an e-mail leave this machine?

Through its sendmail, as every program's does: who may send, and through which server, is set up there.
"""

from __future__ import annotations

import os
import shutil
from email.message import EmailMessage

from swell.notices.facts import facts, summary
from swell.store import JobRecord

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
