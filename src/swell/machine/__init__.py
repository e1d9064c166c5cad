"""This machine: its users, sockets, processes, files, certificates, and the state folder of an installation.

The standard library, the errors and the settings, nothing else of ours: every process of Swell may use it. What a job,
a plan or a task is does not belong here.
"""
