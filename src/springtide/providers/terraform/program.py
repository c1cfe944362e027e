"""Running Terraform: in the cluster's own workspace, one run at a time, its answers as data."""

import fcntl
import json
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Any

from springtide.ports import CloudError, Rejected, Transient
from springtide.providers.programs.notes import Notes
from springtide.providers.programs.run import Done, run
from springtide.providers.terraform import messages
from springtide.spec.clouds import Terraform

GRACE_S = 60.0
"""A run that is interrupted ends what it has begun, and saves its state: so much it may take."""

Nodes = dict[str, dict[str, Any]]
"""What is wanted of each node, as the module gets it."""


class Program:
    """Terraform on one module. What it keeps of its own is below `directory`."""

    def __init__(self, wanted: Terraform, directory: Path, notes: Notes) -> None:
        self._wanted = wanted
        self._directory = directory
        self._notes = notes
        self._threads = Lock()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Other daemons of the cluster wait, too; the state itself is locked by Terraform."""
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self._threads, (self._directory / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def prepare(self, cluster: str) -> None:
        self._checked("init", "-input=false", "-no-color")
        self._checked("workspace", "select", "-or-create", cluster)

    def is_prepared(self) -> bool:
        return (self._directory / "data").is_dir()

    def remove(self, cluster: str) -> None:
        """The workspace, which is empty by then."""
        self._checked("workspace", "select", "default")
        done = self._run("workspace", "delete", cluster)
        if done.code and "doesn't exist" not in done.errors:
            raise messages.failure(done)

    def state(self, output: str) -> tuple[Any, set[str]]:
        """The value of an output, and the nodes that the state has anything of."""
        values = json.loads(self._checked("show", "-json").output or "{}").get("values") or {}
        value = values.get("outputs", {}).get(output, {}).get("value") or {}
        addresses = messages.addresses(values.get("root_module") or {})
        return value, messages.parse_nodes(addresses, self._wanted.resource)

    def apply(self, nodes: Sequence[str]) -> Mapping[str, str]:
        """Have Terraform see to these nodes and no others; answers what failed, by node."""
        return self._apply(nodes, self._variables())

    def destroy(self, nodes: Sequence[str]) -> Mapping[str, str]:
        """The same without them. What is built from all nodes stays; by -destroy it would not."""
        left = {node: one for node, one in self.wanted().items() if node not in nodes}
        self._write(self._directory / "left.tfvars.json", left)
        return self._apply(nodes, f"-var-file={self._directory / 'left.tfvars.json'}")

    def _apply(self, nodes: Sequence[str], variables: str) -> Mapping[str, str]:
        targets = [f'-target={self._wanted.resource}["{node}"]' for node in nodes]
        self._notes.begun(self._wanted.program, nodes)
        try:
            done = self._run("apply", *_APPLY, variables, *targets)
        except CloudError as error:
            self._notes.failed(error, nodes)
            raise
        self._notes.ended(messages.readable(done), nodes)
        if not done.code:
            return {}
        failed = messages.parse_failures(done.output, self._wanted.resource)
        if not failed:
            raise messages.failure(done)
        return {node: failed[node] for node in nodes if node in failed}

    def refresh(self) -> None:
        done = self._run("apply", *_APPLY, "-refresh-only", self._variables())
        if done.code and _NOTHING not in done.output:
            raise messages.failure(done)

    def try_module(self) -> None:
        """Whether it is valid; what Terraform keeps of it for that is thrown away."""
        with tempfile.TemporaryDirectory(prefix="springtide-") as data:
            for arguments in (("init", "-backend=false", "-input=false"), ("validate",)):
                done = self._run(*arguments, "-no-color", data=Path(data))
                if done.code:
                    raise messages.failure(done)

    # What is wanted

    def wanted(self) -> Nodes:
        try:
            nodes: Nodes = json.loads(self._file.read_text())["nodes"]
        except FileNotFoundError:
            return {}
        return nodes

    def want(self, nodes: Nodes) -> None:
        """On disk before Terraform is told."""
        self._write(self._file, nodes)

    def _write(self, path: Path, nodes: Nodes) -> None:
        try:
            with tempfile.NamedTemporaryFile(
                "w", dir=self._directory, prefix=".", delete=False
            ) as file:
                json.dump({"nodes": nodes}, file)
                file.flush()
                os.fsync(file.fileno())
            Path(file.name).replace(path)
        except OSError as error:
            raise Transient(f"cannot write {path}: {error.strerror}") from error

    @property
    def _file(self) -> Path:
        return self._directory / "nodes.tfvars.json"

    def _variables(self) -> str:
        if not self._file.exists():
            self.want({})
        return f"-var-file={self._file}"

    # Runs

    def _checked(self, *arguments: str) -> Done:
        done = self._run(*arguments)
        if done.code:
            raise messages.failure(done)
        return done

    def _run(self, *arguments: str, data: Path | None = None) -> Done:
        if not self._wanted.module.is_dir():
            raise Rejected(f"the module {self._wanted.module} is not there; correct `module`")
        environment = {
            "TF_DATA_DIR": str(data or self._directory / "data"),
            "TF_IN_AUTOMATION": "1",
            "TF_INPUT": "0",
            "CHECKPOINT_DISABLE": "1",
            **{key: value for key, value in os.environ.items() if key.startswith(_PASSED)},
        }
        return run(
            [self._wanted.program, *arguments],
            timeout_s=self._wanted.timeout,
            environment=environment,
            directory=self._wanted.module,
            grace_s=GRACE_S,
        )


_NOTHING = "Cannot apply non-applyable plan"
"""What Terraform says if it finds nothing to record."""
_APPLY = ("-auto-approve", "-input=false", "-json", "-lock-timeout=60s")
_PASSED = ("TF_VAR_", "TF_CLI_CONFIG_FILE", "AWS_", "OS_", "ARM_", "GOOGLE_", "OCI_")
"""Of the daemon's own environment: how providers find their credentials."""
