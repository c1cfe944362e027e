"""The tests of real Slurm clusters, run on other releases of Debian and so on other Slurms.

`make matrix` calls it. A release is a root directory that is made once and kept (`roots`); a run
enters it as a machine of its own (`machine`), runs the tests of some areas there (`areas`), and
tells in a table what passed (`report`).
"""
