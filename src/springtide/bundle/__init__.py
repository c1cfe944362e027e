"""One file for support: what a cluster is, does and did, without its secrets.

`tide bundle` makes it, as root and in its own process: the daemon only answers what it answers
anyway, and knows of no bundles. `disk` knows which files, `past` the record, `secrets` what must
not be in it; `names`, `lines`, `trees`, `masks` and `pack` are pure. What cannot be had is told in
the bundle itself.
"""
