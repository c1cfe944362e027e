"""Files of other systems as parts of a cluster file: only the command `tide import` calls it.

`limits` reads Cluster in the Cloud's limits.yaml and `hosts` the pool of the hybrid service;
`shapes` knows how big a shape is, with a table for each of three clouds; `parts` makes flavors,
groups and partitions of them, and `into` writes these into a cluster file. All of it is pure.
"""
