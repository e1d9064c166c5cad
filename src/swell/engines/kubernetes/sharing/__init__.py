"""GPUs that several pods share by memory.

reservations, reservation_pod  pure: which GPUs are kept for those who share them
reserver                       makes, asks and removes the pods that keep them
"""
