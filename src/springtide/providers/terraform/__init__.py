"""Nodes made by a Terraform (or OpenTofu) module of the site's own.

The module decides what a node is; we decide which nodes there are. The variable `nodes` maps each
node to what is wanted of it, and every run targets only the nodes it is about: others stay as
they are, whatever changed in the module or in the file since they were made.

    variable "nodes" { type = map(object({
      cluster = string, generation = number, group = string, image = string, flavor = string,
      zone = string, market = string, user_data = string, boot = number })) }
    output "nodes" { value = { for name, node in module.node : name => {
      id = …, address = …, generation = …, image = …, flavor = …, boot = … } } }
"""

from hashlib import sha256
from pathlib import Path

from springtide.layout import Layout
from springtide.ports import Provider
from springtide.providers.cloud import Catalog, Cloud
from springtide.providers.programs.notes import Note, Notes
from springtide.providers.terraform.driver import TerraformDriver
from springtide.providers.terraform.program import Program
from springtide.spec.clouds import Terraform


def provider(wanted: Terraform, catalog: Catalog, state: Path, note: Note) -> Provider:
    notes = Notes(note)
    module = sha256(f"{wanted.module}\n{wanted.resource}".encode()).hexdigest()[:12]
    program = Program(wanted, Layout(state).terraform / module, notes)
    return Cloud(TerraformDriver(wanted, catalog, program), threads=4, after=notes.keep)
