"""Who is told that a job has ended, and how?

`Notices` tells: one thread for each notice under way, a few at once for each user, so that a slow one keeps nobody
waiting. `Rules` say what this kind of server may do for its users at all: which addresses it may send to, and whether
it runs programs. A server on Kubernetes runs none. docs/notices.md is what users and operators read.

What a manifest may say is in `manifests/notices.py`; that a notice is due is the controller's to say.
"""

from swell.notices.mail import find_sendmail
from swell.notices.notices import Notices
from swell.notices.programs import Programs
from swell.notices.rules import Rules, rules_for

__all__ = ["Notices", "Programs", "Rules", "find_sendmail", "rules_for"]
