"""Isolation for commands that nobody should trust. Start at `base`: every sandbox has the same interface.

| module | what it does |
|---|---|
| `base` | the interface, its values and `choose()`; one command and its standard streams |
| `bubblewrap` | boxes made of Linux namespaces |
| `launcher`, `supervisor` | the processes behind such a box, and how its owner talks to them |
| `overlay`, `files` | its file systems; reading and writing its files from outside |
| `cgroups`, `syscalls` | limits; Linux calls that Python lacks, and those that a box may not make (seccomp) |
| `docker`, `container`, `archives` | boxes as containers of docker or podman; tar archives that are not trusted |
| `modal`, `none` | boxes at a hosted service; no sandbox at all |
| `bridge` | from a port in a box without network to a unix socket outside |
| `images` | the image store, the users of an image, this machine as an image |
| `dockerfile`, `build` | images from Dockerfiles, without a daemon |
| `cache` | where all this is kept and who owns it; removing what killed processes left |
"""
