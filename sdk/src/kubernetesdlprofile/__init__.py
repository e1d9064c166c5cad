"""The name under which older scripts import the profiler: `from kubernetesdlprofile import kubeprofiler`.

New scripts use `swell_sdk.attach()`; nothing new belongs here.
"""
