"""What runs on nodes: `agent`, a program of the standard library alone, and how it is talked to.

Images are old, so its modules keep to Python 3.6; `bundle` alone runs in the daemon.

A node's user data fetches the agent from the daemon and runs it; the daemon's side is
`api.joining`. All of it is JSON over TLS on `join.port`; the node knows the daemon by the
SHA-256 of its certificate, which is in the user data. Protocol 1:

`GET /agent`            the agent, for anybody: the bytes of `bundle.agent()`.
`POST /join`            {cluster, node, generation, token, machine, phases} → a welcome, with `key`
`POST /refresh`         {cluster, node, generation, key, machine, phases, only?} → one, without
`POST /report`          {cluster, node, generation, key, phases, failed?, final?, log?} → {}

Each has `clock` as well, the node's epoch seconds as it is sent. `only` are the features that the
node needs for now: others may be left out of the welcome.
`machine` is {arch, cpus, memory (MiB), slurm (version of slurmd, or ""), boot (kernel's boot id),
clock (epoch seconds), host_keys ([lines of ssh_host_*_key.pub])}. A phase is {name, at, took_s,
detail}; a `refresh` that fails is one, too. `failed` says why a boot did not succeed, `final` that
it never can, `log` is the end of what was said until then.
The key is a node's own, for its instance: it lets it report and ask again, and ends with it.

A welcome has `protocol`, `cluster`, `node`, `clock`, `features` (those that the node is to have, in
order) and, for each of these, a part of the same name:

    certificates  {files: {NAME.crt: PEM}}
    time          {servers: [HOST]}
    names         {nameserver: ADDRESS or "", search: [NAME], hosts: {NAME: ADDRESS}}
    munge         {key: base64, socket: PATH}
    mounts        [{source, path, type, options: [WORD]}]
    users         {users: [{name, uid, gid, gecos, home, shell}],
                   groups: [{name, gid, members: [NAME]}], sssd: text or ""}
    ssh           {certificates: {ssh_host_KIND_key-cert.pub: line}, known_hosts: line,
                   authorized: [line]}
    ansible       {url, playbook, version or ""}
    health        {path: PATH, text: program}
    slurmd        {server: ADDRESS:PORT, control: NAME, address: the node's, directories: [PATH],
                   tells_boot: whether slurmd says that the machine has booted, memory: MiB that
                   Slurm is told, cpus: N, version: of slurmctld, skew: seconds}
    entry         {command: [WORD], environment: {NAME: text}, files: {PATH: text},
                   settings: {PATH: {lines: [line], defaults: [line]}} (ours among the image's own),
                   directories: [PATH], versions: [WORD] (what tells the node's own), ready: [WORD]
                   (what succeeds once the batch system would take the node), agent: PATH, and
                   address, memory, cpus, version, skew as slurmd has them}: how it becomes a
                   node of another batch system, in place of munge and slurmd

An error is {error: text, final: bool} with status 4xx or 5xx: what is final is not tried again.
"""

PROTOCOL = 1
PHASES = (
    "started",
    "joined",
    "certificates",
    "time",
    "names",
    "munge",
    "mounts",
    "users",
    "ssh",
    "ansible",
    "health",
    "slurmd",
    "entry",
)
"""What a boot consists of, in order, as far as the daemon hears of it from the node."""
