"""What the control host serves its nodes beside the batch system: directories and names.

`configurator` is around the `ports.Configurator` of nodes, so steps call it; `compose` makes it.
The servers outlive the daemon as the batch system's do, and are stopped with it. What they read is
rendered in `configure`.
"""
