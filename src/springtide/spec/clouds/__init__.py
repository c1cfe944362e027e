"""The provider blocks of clouds and machines, one file for each kind. `parts` names them."""

from springtide.spec.clouds.aws import Aws
from springtide.spec.clouds.azure import Azure
from springtide.spec.clouds.command import Command
from springtide.spec.clouds.google import Google
from springtide.spec.clouds.libvirt import Libvirt
from springtide.spec.clouds.oci import Oci
from springtide.spec.clouds.openstack import OpenStack
from springtide.spec.clouds.programs import Programs
from springtide.spec.clouds.remote import Remote
from springtide.spec.clouds.terraform import Terraform

__all__ = [
    "Aws",
    "Azure",
    "Command",
    "Google",
    "Libvirt",
    "Oci",
    "OpenStack",
    "Programs",
    "Remote",
    "Terraform",
]
