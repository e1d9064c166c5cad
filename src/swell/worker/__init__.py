"""The agent on a machine: offers it as a node, runs tasks there, and finds them again after a crash.

A process of its own, light on purpose: `model` and the standard library only. `tasks.py` is the essay on how a
task outlives us; `run.py` works through one launch; `agent.py` is the loop; `sync.py` talks to the server.
Deciding what should run does not belong here.
"""
