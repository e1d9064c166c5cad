"""A picture of the cluster that stays true.

mirror, reflector              a copy of one resource that follows the cluster
observed_objects, unreadable   what is kept of pods and nodes, and what cannot be read
cluster, pod_index             all of it in order
nodes, offers                  what nodes have left for us
priority_classes, quotas, warnings, addressed
"""
