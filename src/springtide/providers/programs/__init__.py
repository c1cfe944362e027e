"""Providers that run programs of the site, Terraform's or any: what `command` and `terraform` share."""
