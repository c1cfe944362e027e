"""How much of a size's memory its nodes show: one rule for checks, `tide flavors` and imports."""

KERNEL_PERCENT = 4
KERNEL_MIB = 256
ARM_MIB = 512


def seen_by_linux(nominal: int, arch: str = "x86_64") -> int:
    """The memory that a node surely shows of what its size has by name, in MiB.

    Firmware and kernel keep some to themselves: about a 64th for the table of pages, and room
    for a crash kernel, which is fixed and on Arm larger. Less 4 % and 256 (512) MiB covers both,
    but it is never less than half. slurmd reports what is left, and Slurm drains a node that has
    less than its line in slurm.conf says.
    """
    kept = ARM_MIB if arch == "aarch64" else KERNEL_MIB
    return max(nominal * (100 - KERNEL_PERCENT) // 100 - kept, nominal // 2, 1)
