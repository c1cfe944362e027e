"""An MPI program for jobs of tests: it prints where its processes are."""

HELLO = """\
from mpi4py import MPI; \
names = MPI.COMM_WORLD.gather(MPI.Get_processor_name()); \
names and print(*names)\
"""
"""One speaks for all: mpirun may mix what several print."""
MPIRUN = "mpirun --allow-run-as-root /usr/bin/python3"
RUN = f"{MPIRUN} -c '{HELLO}'"
