"""A real Kubernetes cluster on this machine, for tests and benchmarks: `python -m tests.cluster up`.

The pinned binaries (`recipes`, `binaries`), a control plane (`controlplane`), simulated nodes (`kwok`) and real ones
(`network`, `nodes`, `images`), the operators whose kinds Swell reads (`operators`), all put together in `cluster`.
Every process dies with whoever started it. What Swell itself does on Kubernetes is not tested here but with this.
"""
