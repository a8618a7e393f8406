"""Isolation for commands that nobody should trust. Start at `base`: every sandbox has the same interface.

| module | what it does |
|---|---|
| `base`, `commands` | the interface, its values and `choose()`; one command with its streams and user |
| `bubblewrap` | boxes made of Linux namespaces |
| `launcher`, `supervisor`, `starter` | the processes behind such a box |
| `overlay`, `files` | its file systems; reading and writing its files from outside |
| `cgroups`, `seccomp`, `syscalls` | limits, forbidden system calls, Linux calls that Python lacks |
| `docker`, `container`, `archives` | boxes as containers of docker or podman; tar archives that are not trusted |
| `modal`, `none` | boxes at a hosted service; no sandbox at all |
| `bridge` | from a port in a box without network to a unix socket outside |
| `images`, `host` | the image store; this machine as an image |
| `dockerfile`, `build` | images from Dockerfiles, without a daemon |
| `cache`, `cleanup` | where all this is kept and who owns it; removing what killed processes left |
"""
