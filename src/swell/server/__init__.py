"""The server process (`python -m swell.server`): builds every part, starts them, serves until it is told to stop.

    __main__         flags, settings, the parts in order
    backends         the engine, and what starts and ends with it: on workers, or on Kubernetes
    cluster_objects  jobs become objects of a cluster
    listeners        the sockets
    supervisor       keeps this machine's worker alive

The only package that knows all others. Rules and endpoints do not belong here.
"""
