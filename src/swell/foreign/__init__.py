"""What do the words of other systems' commands mean in ours?

Pure translation into our own manifest, for whoever submits: a command or a door. Only the standard library, so that a
command is quick to start. Foreign manifests do not belong here: they are read in `manifests/`.
"""
