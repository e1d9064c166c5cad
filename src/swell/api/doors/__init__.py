"""The wire formats of other systems, so that their clients change an address and nothing else.

Each door is one file that translates and calls the same functions as our own API: `genai.py`, `kubeprofiler.py`.
How a door is reached is `entrance.py` (with a token, or under an address that is one) and `keeper.py` (a port that an
admin has opened). What does not belong here: decisions about jobs, and anything one of our own clients needs.
"""
