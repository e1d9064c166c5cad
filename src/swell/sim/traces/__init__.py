"""Workloads from files: each format is one module with `read`. A file that cannot be meant is refused with its line."""
