"""How much of a size's memory its nodes show; for checks of clouds and for `tide flavors`."""

KERNEL_PERCENT = 4
KERNEL_MIB = 256


def seen_by_linux(nominal: int) -> int:
    """The memory that a node surely shows of what its size has by name, in MiB.

    Firmware and kernel keep some to themselves: about a 64th for the table of pages, and room
    for a crash kernel, which is fixed. Less 4 % and 256 MiB covers both, but it is never less
    than half. slurmd reports what is left, and Slurm drains a node that has less than its line
    in slurm.conf says.
    """
    return max(nominal * (100 - KERNEL_PERCENT) // 100 - KERNEL_MIB, nominal // 2, 1)
