"""Schedulers side by side: which of them suits this mix of jobs, on this cluster?

    experiment    the file: a workload, a cluster, contenders
    workloads     those that are included, and how gangs are drawn from a seed
    events        what happened in a run, as it was seen
    measure       pure: what follows from these events, for each gang and for a run
    statistics    pure: averages and intervals that count what did not finish
    conclude      pure: which sentence may be said
    results       the folder of an experiment, which survives an interruption
    simulated     the simulator as a cluster
    kubernetes    a real cluster
    report        tables, plots and the page

What does not belong here: benchmarks of Swell itself (`bench/`), and how a policy decides (`swell.planner`).
"""
