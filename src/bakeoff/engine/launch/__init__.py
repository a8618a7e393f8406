"""Jobs that run a whole experiment elsewhere: write the job's file, start it, bring the results home.

| module | what it does |
|---|---|
| `job` | `Job`: what runs and what it needs, the same for every target; the interface `Target` |
| `sky` | a SkyPilot task |
| `kuberay` | a RayJob of the KubeRay operator |
| `slurm` | a batch script that starts a Ray cluster inside its allocation |

Targets call the programs of their system (`sky`, `kubectl`, `sbatch`) and import none of its packages. On more than one
node the experiment runs with the executor `ray` on a Ray cluster that belongs to the job; on one node it runs locally.
"""
