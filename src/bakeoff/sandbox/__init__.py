"""Boxes for commands that nobody should trust. Start at `face`: every sandbox looks the same from outside.

| module | what it does |
|---|---|
| `face`, `spec` | what a box can do, and `choose()`; what it is made of and how a command ended |
| `bubblewrap` | boxes by namespaces of the kernel |
| `launcher`, `keeper`, `starter`, `wire` | the processes behind such a box, and what they say to each other |
| `overlay`, `volume`, `layer`, `accounts` | its files: where they live, and how they are read and written from outside |
| `cgroups`, `seccomp`, `syscalls` | limits, forbidden system calls, and calls that Python lacks |
| `docker`, `container`, `archives` | boxes as containers of docker or podman, whose files travel as tar streams |
| `modal`, `none` | boxes at a hosted service; no sandbox at all |
| `bridge`, `streams` | the way out of a box without network; standard streams |
| `images`, `host`, `unpack` | images as directories: this machine, or an unpacked archive |
| `dockerfile`, `context`, `building` | images from Dockerfiles, without a daemon |
| `cache`, `scratch`, `marks`, `leftovers` | where all of it lies, whose it is, and what killed processes left |
"""
