"""The logs of pods, copied to our disk before the pods are gone.

keeper, stream                 which pods' logs are copied, and how one is read to its end
lines, file                    what of a stream is new, and what of it is on disk
"""
