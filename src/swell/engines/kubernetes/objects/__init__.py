"""Pure: what the objects of a job look like, and what is read from them.

objects, kinds                 objects that make pods: Job, JobSet, PyTorchJob
pod_template, own_pods         what a user's pods become, and those that we make
placement_rules, amounts, namespaces
"""
