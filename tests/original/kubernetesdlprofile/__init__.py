"""What a script that was written for kubernetesdlprofile does on the wire, request by request.

Written from the facts of its protocol: which variables it reads, what it sends when, without a token, without waiting
long for anything, and without looking at a status. Used by tests in the place of the original.
"""
