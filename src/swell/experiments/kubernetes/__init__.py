"""A real cluster as the place where contenders are measured.

    cluster      what `swell.experiments.race` knows: check, describe, one run
    checks       may this be measured here? Asked before anything is touched
    nodes        pure: which nodes there are, what they hold, and what is kept of them
    render       pure: a gang as the objects that are created
    observe      pure: events of a run from what watches say of pods
    measured     one run: submit, end simulated ranks, notice that nothing happens any more
    namespace    where all of it is made, and how it is taken away again
    contenders   which scheduler is measured: its programs, its objects, its own costs
    kueue        the contender that needs most
    programs     a contender's program as a process of ours

What does not belong here: how a test cluster is started (`tests/cluster`); an experiment is given its kubeconfig.
"""
