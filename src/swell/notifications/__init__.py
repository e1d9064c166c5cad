"""Who is told that a job has ended, and how?

`Notices` tells: one thread for each notice under way, a few at once for each user, so that a slow one keeps nobody
waiting. `NotificationRules` say what this kind of server may do for its users at all: which addresses it may send to,
and whether it runs programs. A server on Kubernetes runs none. docs/notices.md is what users and operators read.

What a manifest may say is in `manifests/native.py`; that a notice is due is the controller's to say.
"""

from swell.notifications.facts import find_sendmail
from swell.notifications.notices import Notices
from swell.notifications.programs import Programs
from swell.notifications.rules import NotificationRules, rules_for

__all__ = ["Notices", "NotificationRules", "Programs", "find_sendmail", "rules_for"]
