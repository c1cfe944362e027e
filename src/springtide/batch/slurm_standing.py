"""How our part stands in a Slurm of somebody else's, from its files and its slurmctld: pure."""

from dataclasses import dataclass

from springtide.batch.slurm_conf_lines import needs_restart
from springtide.batch.slurm_existing import Conf, Running
from springtide.batch.slurm_include import decide_differences
from springtide.batch.slurm_versions import Change


@dataclass(frozen=True, slots=True)
class Standing:
    """How we stand in that Slurm."""

    conf: Conf
    running: Running
    missing: tuple[str, ...]
    """Our nodes that slurmctld does not know, as far as it tells."""
    wanted: str
    """What the include should be."""
    written: str
    """What it is."""
    written_at: float
    taken: str
    """What slurmctld was last seen to run with."""

    @property
    def is_taken(self) -> bool:
        """Whether slurmctld runs with what the include should be."""
        if self.conf.ours is None or self.missing or self.written != self.wanted:
            return False
        return self._was_read and not decide_differences(self.wanted, self.running)

    @property
    def _was_read(self) -> bool:
        """At its start, or since: then only if what has changed can be reread."""
        if self.taken == self.wanted:
            return True
        since = self.running.booted_at >= int(self.written_at)
        return self.running.has_read_the_file and (since or not self.needs_restart)

    @property
    def needs_restart(self) -> bool:
        """Whether slurmctld must be restarted to run with what the include should be."""
        if Change.RELOADS_ALL.applies(self.running.release):
            return False
        return not self.taken or needs_restart(self.taken, self.wanted)

    @property
    def may_reload(self) -> bool:
        """Whether we may ask slurmctld to reread its files.

        An old one dies of it if nodes came or went, which its owner may have in mind.
        """
        if Change.RELOADS_ALL.applies(self.running.release):
            return True
        only_ours = self.running.has_read_the_file and self.written == self.taken
        return only_ours and not self.needs_restart
