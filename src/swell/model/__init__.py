"""The values everybody shares: jobs, nodes, snapshots, plans, reasons. Standard library only.

Frozen, hashable where it helps, sorted by id. Nothing here reads a clock, a file or a socket, and nothing
here decides: decisions are the planner's.
"""
