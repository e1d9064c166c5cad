"""Who is who on this machine."""

from __future__ import annotations

import pwd

from swell.machine.users import user_by_uid, user_of_job

NOBODY_HAS_IT = 4_000_000_000


def test_a_number_that_nobody_has_is_nobody():
    assert user_by_uid(NOBODY_HAS_IT) is None


def test_the_number_that_stands_for_somebody_unknown_is_nobody_although_it_has_a_name():
    """In a user namespace the kernel shows everybody from outside as 65534."""
    assert user_by_uid(65534) is None


def test_a_name_that_belongs_to_somebody_else_since_is_not_taken_for_who_submitted():
    root = pwd.getpwuid(0)
    found = user_of_job(root.pw_name, 0)
    assert found is not None
    assert (found.name, found.uid, found.gid) == (root.pw_name, 0, root.pw_gid)
    assert user_of_job(root.pw_name, 12345) is None
    assert user_of_job("nobody-is-called-so", 12345) is None
