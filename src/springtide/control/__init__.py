"""The container in which a cluster's daemon and batch system run, if its file says so.

`cli.controlled` makes it for `tide deploy`, and sees it off for `tide destroy`. Its network, its
processes and its mounts are its own, and the nodes' within them: with its first process all of
that is gone. What must outlive it is in the state directory. There, `control/` has what it was
made from and who its first process is.
"""
