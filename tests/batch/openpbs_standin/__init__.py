"""OpenPBS for tests: executable commands that keep state in a directory and answer as the real
ones were recorded to do; what was not recorded follows the words of its source.

`test_openpbs_standin` compares its answers with recordings, byte for byte. As on a real server, a
pbs_mom that reaches it by another address than it has registered is never heard. Nobody recorded,
and this is assumed (docs/batch/openpbs.md says it): what qrerun and qalter do and say, and qdel of
others' jobs; tasks of an array that are deleted are shown as if they had ended; what qmgr says of
queues and resources that there are not, and while the server is down; that a comment has at most
79 bytes; the attribute `queue` of nodes; limits of queues and of arrays; `raw`, which is how
versions before 20 print environments.

Tests have `server.Standin`; the executables import the rest, and little else, for they are many.
"""
