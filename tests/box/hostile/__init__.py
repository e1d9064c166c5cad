"""One hostile user, and what a second one feels of it.

`attacks.py` has every attack as a value; `test_hostile.py` holds the second user's wait against a second, and
`PYTHONPATH=tests python -m box.hostile` prints the table of docs/security.md. Everything stays on this machine.
"""
