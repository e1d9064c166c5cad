"""How do a job's files come to another machine, and what it wrote come back?

A folder is a *listing* (paths, sizes, digests) and *chunks* of bytes, known by their SHA-256, so nothing is sent that
the other side has. `listing` says what a folder may contain; `ignore` what is left out; `pack` reads a folder,
`unpack` writes one; `chunk_store` keeps chunks on the server, `shared_cache` keeps whole files for several workers. How
they are sent is not here: `client/transfer.py` and `worker/job_files.py` do that.
"""
