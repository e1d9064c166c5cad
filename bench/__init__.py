"""How fast is Swell, and beside whom? `python -m bench` prints one JSON line per row.

Each benchmark is a module with a `run(setting)` that yields rows; `__main__.py` lists them. A time or a rate here is
only worth comparing inside one run: machines are shared. What tests check (behaviour) does not belong here.
"""
