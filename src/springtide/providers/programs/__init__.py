"""What providers share that run programs of the site: `command` and `terraform`."""
