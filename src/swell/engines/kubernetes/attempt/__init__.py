"""One attempt of a job on Kubernetes, from its start until it is forgotten.

wanted, observer               what is asked for, and what of it is there
steps                          pure: what is missing between the two
follow, follow_array, state    pure: what has become of the attempt's tasks
numbering                      which task a pod is
attempt, attempts              the attempts, and whose turn it is
reconciler, api_calls          the thread that makes one like the other, and the calls it makes
refusals, leftovers            what controllers refuse, and what is removed in the end
termination_message            the last report of a job that ended while nobody listened
"""
