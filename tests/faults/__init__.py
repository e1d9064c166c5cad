"""What survives when a real control plane misbehaves under Swell?

workload       which jobs come, by which way, and how each must end
cast           those of them that are resized, preempted, held, or share a GPU
parts          who does that with them, and who says what programs would say
proxy          stands between Swell and the API server: refuses, loses answers, hangs up, kills at a chosen write
kills          when Swell is killed
disturbances   what else goes wrong, one after the other
history        everything the API server showed of pods and nodes, in order
judge          pure: what in that history may never be
rounds         one round from one seed
"""
