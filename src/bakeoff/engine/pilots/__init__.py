"""Runs on other machines: pilots that run attempts there, claims on attempts, and the way home of results.

| module | what it does |
|---|---|
| `messages` | what scheduler and pilots tell each other |
| `transport` | the interface that an engine implements: carry messages, start and end pilots |
| `settings` | settings that all executors with pilots share, and the setup of a pilot |
| `executor` | the scheduler's side: hands out claimed attempts, fences late reports, takes back what was lost, adopts |
| `held` | which pilot holds which claim, and the states of a claim |
| `fleet` | the pilots as the scheduler knows them: who is silent, what was lost with whom and why, who takes whose place |
| `pilot` | the node's side: a long-lived process with slots, around a local node (engine/node) |
| `connection` | a pilot's messages and transfers of run directories, in threads of its own |
| `arrivals` | run directories that come home: beside their place, then renamed |
| `scratch` | directories for files on a node, and what killed pilots left of them |
| `packing` | a directory as an archive, for engines without a shared file system |
| `attachments` | task directories and other files that such engines bring to nodes, by digest |
| `spool` | the transport of engines with a shared file system: three files for each pilot |

    scheduler: PilotExecutor -- Transport ~~~~~~~~ Link -- Pilot -- Node (commands, workers)
                     |                 spool files, actor calls
                  Claims (records/claims.py)

An adapter (engine/executors/slurm.py) gives a `PilotExecutor` a `Transport` and a `Launcher`. Neither the executor nor
the pilot knows how messages travel.

What holds, whatever the engine does:

* A claim is in the database before its attempt is handed out. It has a token, and a report counts only with the token
  of the current claim. So an attempt may be executed twice, and is recorded once.
* Pilots beat. A claim that no beat has named for `expiry` seconds, on the scheduler's monotonic clock, is lost, and so are
  all claims of a pilot that was silent for so long. A pilot that was silent for half of it gets nothing more. A scheduler
  that stood still reads what is waiting, and then gives everybody a third of the expiry to speak. The engine is never asked
  whether a pilot lives.
* A pilot that cannot reach the engine's control plane ends its runs before its claims expire. One that can, but sees
  no scheduler, finishes what it has and lingers: the next scheduler adopts it.
* A run's directory is complete and synced at home before its result is recorded.
"""
