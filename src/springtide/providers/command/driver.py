"""`cloud.Driver` over the site's programs."""

import shutil
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Lock

from springtide.ports import (
    Check,
    CloudError,
    CloudFlavor,
    CloudImage,
    Instance,
    InstanceState,
    Launch,
    Need,
    Rejected,
    Site,
    Transient,
)
from springtide.providers.cloud import Catalog, script
from springtide.providers.cloud.here import own_address
from springtide.providers.command import lines
from springtide.providers.command.lines import Seen
from springtide.providers.command.marks import Mark, Marks
from springtide.providers.programs.notes import Notes
from springtide.providers.programs.run import Done, run
from springtide.spec.clouds import Command

LOOK_S = 0.2
NO_IMAGES = "machines that programs switch on and off cannot be made images of"


class CommandDriver:
    """Machines of the site."""

    batch = 1000
    in_place = False

    def __init__(self, wanted: Command, catalog: Catalog, marks: Marks, notes: Notes) -> None:
        self._wanted = wanted
        self._catalog = catalog
        self._marks = marks
        self._notes = notes
        self._locks: defaultdict[str, Lock] = defaultdict(Lock)
        self._making: set[str] = set()
        """Nodes that a program is starting now."""

    def prepare(self, cluster: str) -> Site:
        return Site(self._wanted.control_address or own_address())

    def remove(self, cluster: str) -> None:
        for mark in self._marks.all(cluster):
            self._marks.forget(mark)

    def list(self, cluster: str) -> Sequence[Instance]:
        """Ours, if the program knows them; and those of ours that it says nothing about."""
        marks = list(self._marks.all(cluster))
        if not marks:
            return []
        seen = self._look(cluster)
        mine = [m for m in marks if m.node in seen or m.maker == self._maker]
        found = [self._shown(mark, seen.get(mark.node)) for mark in mine]
        return [one for one in found if one is not None]

    def launch(self, launches: Sequence[Launch]) -> Mapping[str, Instance | CloudError]:
        """Marked before the program runs: whatever becomes of it, what is on then is ours."""
        now = time.time()
        marks = [self._mark(launch, now) for launch in launches]
        for mark in marks:
            self._marks.write(mark)
        nodes = {mark.node for mark in marks}
        self._making |= nodes
        try:
            answers = self._start(self._wanted.create, launches)
        finally:
            self._making -= nodes
        return {mark.node: self._made(mark, answers.get(mark.node)) for mark in marks}

    def _made(self, mark: Mark, answer: str | CloudError | None) -> Instance | CloudError:
        if isinstance(answer, CloudError):
            return answer
        made = replace(mark, made=True, address=answer or mark.address)
        self._marks.write(made)
        return _instance(made, InstanceState.PENDING, made.address)

    def delete(self, instances: Sequence[Instance]) -> Mapping[str, CloudError]:
        with self._alone(one.node for one in instances):
            return self._delete(instances)

    def _delete(self, instances: Sequence[Instance]) -> Mapping[str, CloudError]:
        marks = {one.id: mark for one in instances if (mark := self._of(one))}
        going = [one for one in instances if one.id in marks]
        if not going:
            return {}
        for one in going:
            self._marks.write(replace(marks[one.id], going=True))
        try:
            answers = self._run(self._wanted.delete, lines.render_instances(going), going)
        except CloudError as error:
            return {one.id: error for one in going}
        said = {one.id: answers.get(one.node) for one in going}
        return {id: answer for id, answer in said.items() if isinstance(answer, CloudError)}

    def renews(self, markets: Sequence[str]) -> bool:
        return True

    def reboot(self, instance: Instance, launch: Launch) -> Instance:
        with self._alone([launch.node]):
            return self._reboot(instance, launch)

    def _reboot(self, instance: Instance, launch: Launch) -> Instance:
        """Without a program for it the machine is stopped and started, and stays ours."""
        mark = self._of(instance)
        if mark is None or mark.going:
            raise Transient(f"{launch.node} is being switched off")
        if self._wanted.reboot is None:
            self._stop(instance)
        answers = self._start(self._wanted.reboot or self._wanted.create, [launch])
        booted = self._made(replace(mark, booted_at=time.time()), answers.get(launch.node))
        if isinstance(booted, CloudError):
            raise booted
        return booted

    def rebuild(self, instance: Instance, launch: Launch) -> Instance:
        raise Rejected(NO_IMAGES)

    def console(self, instance: Instance) -> str:
        return ""

    def snapshot(self, instance: Instance, name: str) -> CloudImage:
        raise Rejected(NO_IMAGES)

    def images(self, cluster: str) -> Sequence[CloudImage]:
        return []

    def forget(self, image: CloudImage) -> None:
        """There are none."""

    def flavors(self) -> Mapping[str, CloudFlavor]:
        return {}

    def check(self, cluster: str, needs: Sequence[Need]) -> Sequence[Check]:
        named = {key: getattr(self._wanted, key) for key in ("create", "delete", "list", "reboot")}
        programs = {key: words[0] for key, words in named.items() if words}
        missing = [
            Check(f"program {key}", False, f"{path} is not there, or cannot be run", _todo(key))
            for key, path in programs.items()
            if shutil.which(path) is None
        ]
        return missing or [self._check_list(cluster, needs)]

    @contextmanager
    def _alone(self, nodes: Iterable[str]) -> Iterator[None]:
        """A machine is switched by one program at a time."""
        with ExitStack() as stack:
            for node in sorted(set(nodes)):
                stack.enter_context(self._locks[node])
            yield

    def close(self) -> None:
        """Nothing is held open."""

    def _check_list(self, cluster: str, needs: Sequence[Need]) -> Check:
        try:
            seen = self._look(cluster)
        except CloudError as error:
            return Check("program list", False, str(error), "run it by hand, and mend it")
        return Check("program list", True, f"it knows {len(seen)} machines")

    # Programs

    def _look(self, cluster: str) -> Mapping[str, Seen]:
        return lines.parse_list(self._checked(self._wanted.list, "", cluster).output)

    def _start(
        self, command: Sequence[str], launches: Sequence[Launch]
    ) -> Mapping[str, str | CloudError | None]:
        """User data is in a file that the environment names, for programs that can use it."""
        first = launches[0]
        ids = {name: i.id_for("x86_64") or str(i.path) for name, i in self._catalog.images.items()}
        with tempfile.TemporaryDirectory(prefix="springtide-") as directory:
            path = Path(directory) / "user-data"
            path.write_text(script.listed(launches))
            more = {"TIDE_GROUP": first.group, "TIDE_USER_DATA": str(path)}
            return self._run(command, lines.render_launches(launches, ids), launches, more)

    def _run(
        self,
        command: Sequence[str],
        stdin: str,
        of: Sequence[Launch] | Sequence[Instance],
        more: Mapping[str, str] | None = None,
    ) -> Mapping[str, str | CloudError | None]:
        """What it said of each node; if it failed, that of those it said nothing about."""
        nodes = [one.node for one in of]
        self._notes.begun(command[0], nodes)
        try:
            done = self._ran(command, stdin, of[0].cluster, more or {})
        except CloudError as error:
            self._notes.failed(error, nodes)
            raise
        self._notes.ended(done, nodes)
        failed = dict.fromkeys(nodes, _failure(done)) if done.code else {}
        return {**failed, **lines.parse_answers(done.output, nodes)}

    def _checked(self, command: Sequence[str], stdin: str, cluster: str) -> Done:
        done = self._ran(command, stdin, cluster, {})
        if done.code:
            raise _failure(done)
        return done

    def _ran(
        self, command: Sequence[str], stdin: str, cluster: str, more: Mapping[str, str]
    ) -> Done:
        environment = {"TIDE_CLUSTER": cluster, **more}
        return run(command, timeout_s=self._wanted.timeout, stdin=stdin, environment=environment)

    def _stop(self, instance: Instance) -> None:
        """Until it is off: a start of what is still on would be lost."""
        answers = self._run(self._wanted.delete, lines.render_instances([instance]), [instance])
        if isinstance(error := answers.get(instance.node), CloudError):
            raise error
        end = time.monotonic() + self._wanted.timeout
        while (seen := self._look(instance.cluster).get(instance.node)) and seen.state is not None:
            if time.monotonic() > end:
                raise Transient(f"{instance.node} is still on after {self._wanted.timeout:g} s")
            time.sleep(LOOK_S)

    # Marks

    @property
    def _maker(self) -> str:
        return " ".join(self._wanted.list)

    def _may_come(self, mark: Mark) -> bool:
        """A program may be starting it, perhaps one that a daemon before this one began."""
        recent = time.time() < mark.created_at + self._wanted.timeout
        return not mark.going and (mark.node in self._making or recent)

    def _mark(self, launch: Launch, now: float) -> Mark:
        """The same launch again keeps the mark it has."""
        known = self._marks.find(launch.node)
        if known and (known.cluster, known.generation) == (launch.cluster, launch.generation):
            return replace(known, made=False, going=False)
        return Mark(
            cluster=launch.cluster,
            node=launch.node,
            generation=launch.generation,
            image=launch.image,
            flavor=launch.flavor,
            zone=launch.zone,
            maker=self._maker,
            created_at=now,
            booted_at=now,
        )

    def _of(self, instance: Instance) -> Mark | None:
        mark = self._marks.find(instance.node)
        return mark if mark and mark.id == instance.id else None

    def _shown(self, mark: Mark, seen: Seen | None) -> Instance | None:
        """One that was told to go, or never came, and is off, is ours no more."""
        state = seen.state if seen else None
        if state is None and (mark.going or not mark.made):
            if not self._may_come(mark):
                self._marks.forget(mark)
            return None
        shown = InstanceState.DELETING if mark.going else state or InstanceState.STOPPED
        return _instance(mark, shown, (seen.address if seen else None) or mark.address)


def _instance(mark: Mark, state: InstanceState, address: str | None) -> Instance:
    return Instance(
        id=mark.id,
        cluster=mark.cluster,
        node=mark.node,
        generation=mark.generation,
        state=state,
        address=address,
        image=mark.image,
        flavor=mark.flavor,
        zone=mark.zone,
        created_at=mark.created_at,
        booted_at=mark.booted_at,
    )


def _failure(done: Done) -> CloudError:
    return Transient(f"{done.name} failed with {done.end}: {done.said or 'it said nothing'}")


def _todo(key: str) -> str:
    return f"make it, `chmod 755` it, or correct `provider: {{{key}: …}}`"
