"""Workers that come when the queue needs them: a pool starts them in a batch system or cluster, and lets idle ones go.

`PoolBackend` (backend.py) is what a batch system or cluster must answer; each kind has a folder with `render.py` (our
order → its request), `parse.py` (its answer → our values) and `backend.py` (sends and receives, decides nothing), and
is listed in kinds.py. `worker_command.py` writes the command line of a worker, once for all of them; options.py has
the options of every pool; decide.py is the pure decision; loop.py is the one loop, in a process of its own.

A pool knows `model` and nothing of the planner: which waiting jobs lack how many workers is the server's to say. An SDK
of a cloud is imported in the folder of its kind only, and there only when a backend is made.
"""
