"""What survives when a real control plane misbehaves under Swell?

workload       which jobs come, by which way, and how each must end
proxy          stands between Swell and the API server: refuses, loses answers, hangs up, kills at a chosen bind
disturbances   what goes wrong, one after the other
history        everything the API server showed of pods and nodes, in order
judge          pure: what in that history may never be
rounds         one round from one seed
"""
