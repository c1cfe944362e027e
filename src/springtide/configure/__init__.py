"""How nodes become members: keys, programs on the control host, what a node does at boot.

Called by steps through `ports.Configurator`; the daemon composes it.
"""
