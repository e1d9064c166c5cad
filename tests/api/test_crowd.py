"""Connections: everybody has a share, and strangers a small one in which the newest is heard."""

from __future__ import annotations

from swell.api.crowd import ADDRESS_MAX, KNOWN_MAX, ROOT, STRANGERS_MAX, USER_MAX, WORKERS_MAX, Crowd, WorkersAt


class Seat:
    def __init__(self, *, is_busy: bool = False) -> None:
        self.is_busy = is_busy
        self.has_given_way = False

    def is_idle(self) -> bool:
        return not self.is_busy

    def give_way(self) -> None:
        self.has_given_way = True


def strangers(crowd: Crowd, count: int, origin: str = "127.0.0.1") -> list[Seat]:
    seats = [Seat() for _ in range(count)]
    assert all(crowd.enter_as_stranger(seat, origin) for seat in seats)
    return seats


def test_the_newest_stranger_takes_the_place_of_the_one_that_was_silent_for_longest():
    crowd = Crowd()
    first, *others = strangers(crowd, STRANGERS_MAX)
    owner = Seat()
    assert crowd.enter_as_stranger(owner, "127.0.0.1")
    assert first.has_given_way
    assert not any(seat.has_given_way for seat in (*others, owner))


def test_who_has_said_who_they_are_gives_way_to_no_stranger():
    crowd = Crowd()
    [owner] = strangers(crowd, 1)
    assert crowd.recognise(owner, "ann", share=False)
    strangers(crowd, 3 * STRANGERS_MAX)
    assert not owner.has_given_way


def test_who_is_being_answered_does_not_give_way_and_one_too_many_is_refused():
    crowd = Crowd()
    busy = [Seat(is_busy=True) for _ in range(STRANGERS_MAX)]
    assert all(crowd.enter_as_stranger(seat, "127.0.0.1") for seat in busy)
    assert not crowd.enter_as_stranger(Seat(), "127.0.0.1")
    assert not any(seat.has_given_way for seat in busy)


def test_one_machine_does_not_push_out_the_strangers_of_another():
    crowd = Crowd()
    [first] = strangers(crowd, 1, "10.0.0.1")
    flood = strangers(crowd, 2 * STRANGERS_MAX, "10.0.0.2")
    assert not first.has_given_way
    assert sum(seat.has_given_way for seat in flood) == STRANGERS_MAX + 1


def test_one_user_has_a_share_and_root_as_many_as_there_are():
    crowd = Crowd()
    assert all(crowd.enter(Seat(), 1001) for _ in range(USER_MAX))
    assert not crowd.enter(Seat(), 1001)
    assert crowd.enter(Seat(), 1002)
    assert all(crowd.enter(Seat(), ROOT) for _ in range(KNOWN_MAX))


def test_who_has_left_has_made_room():
    crowd = Crowd()
    seats = [Seat() for _ in range(USER_MAX)]
    assert all(crowd.enter(seat, 1001) for seat in seats)
    crowd.leave(seats[0])
    assert crowd.enter(Seat(), 1001)


def test_workers_at_one_address_leave_room_for_others_and_all_of_them_for_users():
    """Whoever had a worker's token could open connections until the process had no descriptors left."""
    crowd = Crowd()
    first = [Seat() for _ in range(ADDRESS_MAX)]
    assert all(crowd.enter(seat, WorkersAt("10.0.0.1")) for seat in first)
    one_too_many = Seat()
    assert not crowd.enter(one_too_many, WorkersAt("10.0.0.1"))
    crowd.leave(one_too_many)
    others = [crowd.enter(Seat(), WorkersAt(f"10.0.1.{n}")) for n in range(WORKERS_MAX)]
    assert others.count(True) == WORKERS_MAX - ADDRESS_MAX
    crowd = Crowd()
    assert all(crowd.enter(Seat(), WorkersAt(f"10.0.1.{n}")) for n in range(WORKERS_MAX))
    assert all(crowd.enter(Seat(), "ann") for _ in range(USER_MAX))
    assert crowd.enter(Seat(), ROOT)
