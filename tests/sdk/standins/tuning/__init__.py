"""A stand-in, see README.md of the stand-ins."""
